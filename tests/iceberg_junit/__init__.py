"""Iceberg's published JUnit tests of its Spark procedures, run with our jar in place of Iceberg's code."""
