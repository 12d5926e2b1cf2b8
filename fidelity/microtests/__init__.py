"""What a microtest of a patch found: checks, the verdict over them, and files that expire."""
