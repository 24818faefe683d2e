"""Stamps in snapshot summaries by which a later run recognises what an earlier one did."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation, Snapshot, ancestors_of

from iceberg_compact_sql.table.paths import same_file_key
from iceberg_compact_sql.table.stamps import GROUPS, RUN_ID

# A summary is part of every metadata file from then on: beyond this many groups only the run id is stamped.
_MAX_STAMPED_GROUPS = 2000


@dataclass(frozen=True, slots=True)
class RunSnapshot:
    """A snapshot of ours in the history of a branch."""

    snapshot_id: int
    run_id: str
    groups: frozenset[str]
    committed_at_ms: int


def group_fingerprint(paths: Iterable[str]) -> str:
    """A short name of a group by its input files; the order does not matter.

    >>> group_fingerprint(["file:/a", "file:/b"]) == group_fingerprint(["file:///b", "file:///a"])
    True
    """
    digest = hashlib.blake2b(digest_size=6)
    for path in sorted(same_file_key(path) for path in paths):
        digest.update(path.encode())
        digest.update(b"\0")
    return digest.hexdigest()


def stamp_summary(run_id: str, fingerprints: Sequence[str]) -> dict[str, str]:
    """What a run writes into the summary of each of its snapshots."""
    stamps = {RUN_ID: run_id}
    if 0 < len(fingerprints) <= _MAX_STAMPED_GROUPS:
        stamps[GROUPS] = ",".join(sorted(fingerprints))
    return stamps


def find_runs(metadata: TableMetadata, branch: str = "main", *, run_id: str | None = None) -> list[RunSnapshot]:
    """Our snapshots in the history of a branch, newest first; of one run when its id is given."""
    found = []
    for snapshot in ancestors_of(metadata.snapshot_by_name(branch), metadata):
        stamps = _properties(snapshot)
        stamped = stamps.get(RUN_ID)
        if stamped is not None and run_id in (None, stamped):
            groups = frozenset(filter(None, stamps.get(GROUPS, "").split(",")))
            found.append(RunSnapshot(snapshot.snapshot_id, stamped, groups, snapshot.timestamp_ms))
    return found


def find_group(metadata: TableMetadata, branch: str, paths: Iterable[str]) -> RunSnapshot | None:
    """The snapshot in which a group of exactly these inputs was already committed, or None.

    A run that was restarted after its commit finds its inputs gone: this tells that from a conflict.
    """
    fingerprint = group_fingerprint(paths)
    return next((run for run in find_runs(metadata, branch) if fingerprint in run.groups), None)


def compaction_times_ms(metadata: TableMetadata) -> dict[int, int]:
    """Commit times of all snapshots that rewrote files without changing rows, ours and other engines'."""
    return {
        snapshot.snapshot_id: snapshot.timestamp_ms
        for snapshot in metadata.snapshots
        if snapshot.summary is not None and snapshot.summary.operation == Operation.REPLACE
    }


def _properties(snapshot: Snapshot) -> Mapping[str, str]:
    return snapshot.summary.additional_properties if snapshot.summary is not None else {}
