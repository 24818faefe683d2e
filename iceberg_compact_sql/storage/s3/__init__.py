"""Objects of S3, addressed by their exact keys."""
