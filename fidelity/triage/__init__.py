"""Takes a failing chat of the user's apart: replays it, shrinks it, asks cheap questions."""
