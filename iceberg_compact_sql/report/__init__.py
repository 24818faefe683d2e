"""Shows progress, log lines, tables and documents."""
