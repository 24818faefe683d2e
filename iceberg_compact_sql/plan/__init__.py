"""Decides which files are rewritten, in which groups, and why: pure functions, no I/O."""
