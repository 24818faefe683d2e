"""Freeing what no snapshot needs."""
