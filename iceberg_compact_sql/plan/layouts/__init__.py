"""Layouts of rows in files: the order of a clustering run, and which files need it."""
