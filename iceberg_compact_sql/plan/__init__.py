"""Which files are rewritten and why: pure functions, no I/O."""
