"""Questions whose right answer is known: how they are built, and how answers are scored."""
