"""What queries read of a table, by Spark's event logs, and what another layout would save. Literals never leave it."""
