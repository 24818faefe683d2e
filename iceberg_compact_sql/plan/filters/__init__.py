"""The `where` argument: from SQL text to an expression that selects files."""
