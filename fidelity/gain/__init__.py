"""How much a context says for its right answer, in nats: a graded measure of reading."""
