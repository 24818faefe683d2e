"""The version of this package; pyproject.toml and everything else read it from here."""

VERSION = "0.1.0"
# The writer that the footer of a Parquet file names, in the form that Parquet readers expect.
CREATED_BY = f"iceberg-compact-sql version {VERSION}"
