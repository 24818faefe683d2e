"""What is kept of each call that changes tables: history, metrics and traces."""
