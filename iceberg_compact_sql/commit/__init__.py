"""Snapshots: nothing lost, nothing doubled, nothing resurrected."""
