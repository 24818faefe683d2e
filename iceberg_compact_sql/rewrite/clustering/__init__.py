"""Rows in a given order: keys as words, curves, ranges of a sample, and sorted files."""
