"""Task families: each module has `make(rng, budget)`, a conversation of at most `budget` tokens.

`held_out=True`, where a family takes it, draws entities and templates that training never sees.
"""
