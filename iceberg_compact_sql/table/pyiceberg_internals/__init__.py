"""The only place that touches private names of pyiceberg."""
