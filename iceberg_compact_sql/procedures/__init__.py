"""One module a procedure: its parameters, its result columns, its spine."""
