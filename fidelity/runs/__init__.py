"""One run: journal, sending, resuming, progress, and its ending."""
