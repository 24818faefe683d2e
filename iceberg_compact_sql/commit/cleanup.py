"""Deleting what a failed commit left: only after certain failure, only paths that this run created."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable

from pyiceberg.io import FileIO

from iceberg_compact_sql import events
from iceberg_compact_sql.table.paths import same_file_key

_logger = logging.getLogger("iceberg_compact_sql")


def delete_created(io: FileIO, created: Iterable[str], *, inputs: Collection[str] = ()) -> int:
    """Delete files that this run created and that are certainly in no snapshot; gives how many went.

    A path that is also an input is never deleted. A file that cannot be deleted is left for `remove_orphans` and
    logged: a failing clean-up must not hide what the commit said.
    """
    kept = {same_file_key(path) for path in inputs}
    deleted = 0
    for path in dict.fromkeys(created):
        if same_file_key(path) in kept:
            _logger.error("clean-up was asked to delete input file %s and did not", path)
            continue
        # pyiceberg cuts a location at '#' and '?' and would delete another object.
        if "#" in path or "?" in path:
            _logger.warning("left behind for remove_orphans: %s", path)
            continue
        events.reach("commit.cleanup", path=path)
        try:
            io.delete(path)
            deleted += 1
        except FileNotFoundError:
            continue
        except Exception as error:
            _logger.warning("left behind for remove_orphans: %s (%s)", path, type(error).__name__)
    return deleted
