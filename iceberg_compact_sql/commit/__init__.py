"""Commit new snapshots, and prove whether they landed."""
