"""A data file as rows of the table's schema."""
