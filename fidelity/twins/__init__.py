"""Twins: two paths of one deployment must give one answer, up to the noise that it shows itself.

`room` what the server is like · `plans` which prompts · `prompts` token-exact texts · `answers`
replies as scored tokens · `comparison` where two arms part · `judging` one prompt · `floor` when
the noise is a fault · `proofs` that a path was taken · `twin` what a twin is · `running` asks,
controls and decides · `profile` where they part ·
one module for each family of paths: `phases`, `cache`, `batch`, `shapes`, `life`, `router`.
"""
