"""File counts in a snapshot's summary, to compare with its metadata files."""

from __future__ import annotations

from pyiceberg.table.snapshots import Snapshot


def summary_counts_files(snapshot: Snapshot) -> bool:
    """Whether the summary counts files. A manifest list without manifests is damaged then."""
    if snapshot.summary is None:
        return False
    counts = (snapshot.summary.get("total-data-files"), snapshot.summary.get("total-delete-files"))
    return any(count not in (None, "0") for count in counts)
