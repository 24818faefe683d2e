"""Rows and row groups into data files."""
