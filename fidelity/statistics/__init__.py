"""Bounds and tests: numbers in, numbers out."""
