"""Properties in snapshot summaries that name the run that made a snapshot, and its file groups."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

from iceberg_compact_sql.storage.same_file import same_file_key
from iceberg_compact_sql.table.summary_keys import GROUPS, RUN_ID

# Every later metadata file holds the summary too: above this many groups only the run id is written.
_MAX_STAMPED_GROUPS = 2000


def group_fingerprint(paths: Iterable[str]) -> str:
    """Return a short hash of the input files of a group; their order does not matter.

    >>> group_fingerprint(["file:/a", "file:/b"]) == group_fingerprint(["file:///b", "file:///a"])
    True
    """
    digest = hashlib.blake2b(digest_size=6)
    for path in sorted(same_file_key(path) for path in paths):
        digest.update(path.encode())
        digest.update(b"\0")
    return digest.hexdigest()


def stamp_summary(run_id: str, fingerprints: Sequence[str]) -> dict[str, str]:
    """Return the properties that a run writes into the summary of each of its snapshots."""
    stamps = {RUN_ID: run_id}
    if 0 < len(fingerprints) <= _MAX_STAMPED_GROUPS:
        stamps[GROUPS] = ",".join(sorted(fingerprints))
    return stamps
