"""Removes files that this run created and that no snapshot uses."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import pyarrow as pa
from pyiceberg.io import FileIO

from iceberg_compact_sql import events
from iceberg_compact_sql.errors import UnsupportedError
from iceberg_compact_sql.redaction import masked_logger
from iceberg_compact_sql.storage.stores import stores_of

_log = masked_logger(__name__)


def remove_files(io: FileIO, paths: Iterable[str]) -> list[str]:
    """Delete files that this run created, in bulk and with retries; return those that still exist.

    Never raises: it runs while failures are handled. The caller guarantees that no commit names these paths.
    """
    distinct = list(dict.fromkeys(paths))
    if not distinct:
        return []
    events.reach("rewrite.clean", paths=tuple(distinct))
    try:
        # Safe: this run created all these paths, and no commit names them.
        failures = stores_of(io).delete(distinct)
    except Exception as error:
        failures = dict.fromkeys(distinct, str(error))
    for path, reason in failures.items():
        _log.warning("cannot delete %s, which this run created: %s", path, reason)
    return list(failures)


def find_lost_files(io: FileIO, run_id: str, folders: Iterable[str], kept: Collection[str], *, deep: bool) -> list[str]:
    """Return files of this run that no accepted result lists: those of killed, speculative or repeated attempts.

    Considers only names that contain the id of this run, so files of others are never returned.
    """
    keep = {path.rsplit("/", 1)[-1] for path in kept}
    stores = stores_of(io)
    lost = []
    for folder in dict.fromkeys(folders):
        try:
            files = stores.walk(folder) if deep else stores.level(folder)
            for file in files:
                name = file.path.rsplit("/", 1)[-1]
                if f"-{run_id}-" in name and name not in keep:
                    lost.append(file.path)
        except FileNotFoundError:
            # No attempt has created the folder.
            continue
        except (OSError, ValueError, pa.ArrowException, UnsupportedError) as error:
            _log.warning("cannot list %s for files of lost attempts: %s", folder, error)
    return lost
