"""Turning input files into output files; runs in Spark tasks."""
