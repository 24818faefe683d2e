"""Findings about a table: pure rules from its files, statistics and metadata to advice with an action."""
