"""From a table name to an open table: which catalog it means, and how that catalog is reached."""
