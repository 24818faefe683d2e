"""Reads and writes the Avro files of manifests."""
