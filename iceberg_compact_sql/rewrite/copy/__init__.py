"""What is copied without decoding."""
