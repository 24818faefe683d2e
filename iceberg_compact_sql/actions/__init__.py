"""The work of each procedure: takes a typed request and returns a typed result. Knows no SQL text."""
