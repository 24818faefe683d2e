"""Which rows of a slice are deleted."""
