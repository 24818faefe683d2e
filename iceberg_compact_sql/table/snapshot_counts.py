"""What a snapshot's summary counts, to be held against what its metadata files hold."""

from __future__ import annotations

from pyiceberg.table.snapshots import Snapshot


def counts_files(snapshot: Snapshot) -> bool:
    """Whether the summary says that the snapshot has files; a list without manifests is damaged then."""
    if snapshot.summary is None:
        return False
    counts = (snapshot.summary.get("total-data-files"), snapshot.summary.get("total-delete-files"))
    return any(count not in (None, "0") for count in counts)
