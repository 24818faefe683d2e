"""Taking back files that this run created and that no snapshot will ever name."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
from pyiceberg.io import FileIO

from iceberg_compact_sql import events
from iceberg_compact_sql.storage.exact_files import delete_exactly, list_folder

_log = logging.getLogger("iceberg_compact_sql")
_DELETES_AT_ONCE = 16


def remove_files(io: FileIO, paths: Iterable[str]) -> list[str]:
    """Delete files that this run created, best effort; those that are still there come back.

    Never raises: it runs on the way out of failures. The caller vouches that no commit names these paths.
    """
    distinct = list(dict.fromkeys(paths))
    if not distinct:
        return []
    events.reach("rewrite.clean", paths=tuple(distinct))
    if len(distinct) == 1:
        return [] if _removed(io, distinct[0]) else distinct
    with ThreadPoolExecutor(min(_DELETES_AT_ONCE, len(distinct))) as pool:
        gone = list(pool.map(lambda path: _removed(io, path), distinct))
    return [path for path, removed in zip(distinct, gone, strict=True) if not removed]


def find_lost_files(io: FileIO, run_id: str, folders: Iterable[str], kept: Collection[str], *, deep: bool) -> list[str]:
    """Files of this run that no accepted result names: what killed, speculative or repeated attempts left behind.

    Only names that carry the run's own id are looked at, so a file of anybody else is never among them.
    """
    keep = {path.rsplit("/", 1)[-1] for path in kept}
    lost = []
    for folder in dict.fromkeys(folders):
        try:
            for path in list_folder(io, folder, recursive=deep):
                name = path.rsplit("/", 1)[-1]
                if f"-{run_id}-" in name and name not in keep:
                    lost.append(path)
        except (OSError, ValueError, pa.ArrowException) as error:
            _log.warning("cannot list %s for files of lost attempts: %s", folder, error)
    return lost


def _removed(io: FileIO, path: str) -> bool:
    try:
        delete_exactly(io, path)
    except Exception as error:
        _log.warning("cannot delete %s, which this run created: %s", path, error)
        return False
    return True
