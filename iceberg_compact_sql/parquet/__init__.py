"""Parquet bytes: footers, page indexes and row groups. Knows neither Iceberg nor Spark."""
