"""The CALL statement: detect, parse and bind it. Nothing here opens a table."""
