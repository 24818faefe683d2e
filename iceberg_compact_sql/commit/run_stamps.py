"""Stamps in snapshot summaries that tell which run of ours made a snapshot, and from which groups of files."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

from iceberg_compact_sql.storage.paths import same_file_key
from iceberg_compact_sql.table.summary_keys import GROUPS, RUN_ID

# A summary is part of every metadata file from then on: beyond this many groups only the run id is stamped.
_MAX_STAMPED_GROUPS = 2000


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
