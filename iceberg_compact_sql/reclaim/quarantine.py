"""Quarantine: move files aside instead of deleting them, restore them, and delete them when their retention ends.

A moved file is `<own folder>/<run>/<delete after, in ms>/<its original path>`: table, time and original path follow
from the path alone. `<run>/moved.json` lists the files of a run in the exact spelling of the metadata and says whether
the run has finished. It is written before the first move. A run that is still moving files keeps its listing; files
whose listing is gone are found by their paths.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pyiceberg.table.metadata import TableMetadata

from iceberg_compact_sql import events
from iceberg_compact_sql.errors import UnsupportedError
from iceberg_compact_sql.reclaim.reachability import NeededFile
from iceberg_compact_sql.reclaim.record_files import own_folder, quarantine_root, write_record
from iceberg_compact_sql.redaction import masked_logger
from iceberg_compact_sql.storage.locations import join, relative_to, split_location
from iceberg_compact_sql.storage.protocol import UnansweredError
from iceberg_compact_sql.storage.stores import Stores

LISTING = "moved.json"
# A run that has not finished after this time has crashed. A wrong guess loses nothing: paths hold the original path.
_ABANDONED_AFTER_MS = 24 * 3_600_000
# An object's key may have an empty level, `.` or `..`; a local path may not.
_ENCODED = {"": "%", ".": "%2E", "..": "%2E%2E"}
_DECODED = {encoded: level for level, encoded in _ENCODED.items()}
_log = masked_logger(__name__)


@dataclass(frozen=True, slots=True)
class MovedFile:
    """A file that was moved aside: where it was and where it is."""

    original: str
    aside: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class QuarantinedRun:
    """The files that one run moved aside, and when they may be deleted; `listing` is None if it does not exist."""

    run_id: str
    listing: str | None
    started_ms: int
    delete_after_ms: int
    files: tuple[MovedFile, ...]
    finished: bool = True

    def is_over(self, now_ms: int) -> bool:
        """Whether the run no longer moves files."""
        return self.finished or now_ms - self.started_ms >= _ABANDONED_AFTER_MS


def put_aside(
    stores: Stores, metadata: TableMetadata, files: Sequence[NeededFile], *, run_id: str, now_ms: int, keep_ms: int
) -> dict[str, str]:
    """Move files into quarantine; returns the reason for each path that could not be moved."""
    refuse_other_stores(metadata, files)
    folder = join(own_folder(metadata), run_id)
    until_ms = now_ms + keep_ms
    moves = [MovedFile(f.path, join(folder, str(until_ms), encoded_path(f.path)), f.size_bytes) for f in files]
    rows = [[move.original, move.aside, move.size_bytes] for move in moves]

    def write_listing(*, finished: bool) -> None:
        write_record(
            stores,
            join(folder, LISTING),
            metadata,
            rows,
            moved_at_ms=now_ms,
            delete_after_ms=until_ms,
            finished=finished,
        )

    def move(item: MovedFile) -> tuple[str, Exception | None]:
        events.reach("reclaim.move", path=item.original)
        return item.original, _try_move(stores, item.original, item.aside)

    write_listing(finished=False)
    failures = {path: error for path, error in stores.each(move, moves) if error is not None}
    events.reach("reclaim.moved", files=len(moves))
    # A move without an answer may be done later: such a run counts as one that still moves files.
    write_listing(finished=not any(isinstance(error, UnansweredError) for error in failures.values()))
    return {path: f"{type(error).__name__}: {error}" for path, error in failures.items()}


def put_aside_until(
    stores: Stores,
    metadata: TableMetadata,
    files: Sequence[NeededFile],
    keep_ms: Mapping[str, int],
    *,
    run_id: str,
    now_ms: int,
) -> dict[str, str]:
    """Move the files that have a retention in `keep_ms` into quarantine, each for its own time."""
    failures: dict[str, str] = {}
    for index, time_ms in enumerate(sorted(set(keep_ms.values()))):
        aside = [file for file in files if keep_ms.get(file.path) == time_ms]
        part_id = f"{run_id}-{index}" if index else run_id
        failures.update(put_aside(stores, metadata, aside, run_id=part_id, now_ms=now_ms, keep_ms=time_ms))
    return failures


def purge(
    stores: Stores,
    quarantined: Iterable[QuarantinedRun],
    now_ms: int,
    needed_of: Callable[[Sequence[str]], Collection[str]],
) -> int:
    """Delete the files whose retention has ended; returns how many were deleted.

    `needed_of` returns the original paths that the current metadata names, as after a return to old metadata. Those
    files are kept.
    """
    due = [run for run in quarantined if run.delete_after_ms <= now_ms]
    originals = [moved.original for run in due for moved in run.files]
    needed = frozenset(needed_of(originals)) if originals else frozenset()
    deleted = 0
    for run in due:
        unneeded = [moved.aside for moved in run.files if moved.original not in needed]
        failures = stores.delete(unneeded)
        deleted += len(unneeded) - len(failures)
        if not failures and len(unneeded) == len(run.files) and run.listing and run.is_over(now_ms):
            stores.delete([run.listing])
    return deleted


def still_aside(stores: Stores, quarantined: Iterable[QuarantinedRun]) -> Iterator[MovedFile]:
    """Return the files that are still in quarantine; changes nothing."""
    for run in quarantined:
        states = stores.each(lambda moved: stores.stat(moved.aside), run.files)
        yield from (moved for moved, state in zip(run.files, states, strict=True) if state is not None)


def restore(stores: Stores, quarantined: Iterable[QuarantinedRun], now_ms: int) -> Iterator[tuple[MovedFile, bool]]:
    """Move every file back to its original path; returns for each one whether it was restored.

    If a file exists at the original path, the file stays in quarantine and the listing of its run is kept. The listing
    of a run that still moves files is kept too: another restore returns the rest.
    """

    def move_back(moved: MovedFile) -> tuple[MovedFile, bool | None]:
        if stores.stat(moved.aside) is None:
            # Never moved, or already restored by an interrupted restore.
            return moved, None
        if stores.stat(moved.original) is not None:
            return moved, False
        return moved, _try_move(stores, moved.aside, moved.original) is None

    for run in quarantined:
        complete = True
        for moved, outcome in stores.each(move_back, run.files):
            if outcome is not None:
                complete = complete and outcome
                yield moved, outcome
        if not run.is_over(now_ms):
            _log.warning("run %s may still move files aside: call restore_quarantine again later", run.run_id)
        elif complete and run.listing:
            stores.delete([run.listing])


def encoded_path(original: str) -> str:
    """Return the original path as levels below the folder of a run.

    >>> encoded_path("s3://bucket/t//data/100%.parquet")
    't/%/data/100%25.parquet'
    """
    levels = split_location(original).path.removeprefix("/").split("/")
    return "/".join(_ENCODED.get(level) or level.replace("%", "%25") for level in levels)


def original_path(aside_root: str, encoded: str) -> str:
    """Return the original location of a file in quarantine, from its levels below the folder of a run.

    >>> original_path("s3://bucket/t/metadata/_quarantine", "t/%/data/100%25.parquet")
    's3://bucket/t//data/100%.parquet'
    """
    store = split_location(aside_root)
    decoded = (_DECODED.get(level, re.sub("%25", "%", level)) for level in encoded.split("/"))
    return f"{store.scheme}://{store.authority}/{'/'.join(decoded)}"


def _try_move(stores: Stores, source: str, target: str) -> Exception | None:
    try:
        stores.move(source, target)
    except FileNotFoundError:
        return None
    except Exception as error:
        return error
    return None


def refuse_other_stores(metadata: TableMetadata, files: Iterable[NeededFile]) -> None:
    """Refuse files that are not on the file system or bucket of the table's metadata: moving them would copy them."""
    store = split_location(quarantine_root(metadata))
    top = store._replace(path="")
    for file in files:
        if relative_to(top, split_location(file.path)) is None:
            raise UnsupportedError(
                f"{file.path} is not on the store of the table's metadata ({store.scheme}://{store.authority})",
                argument="quarantine",
                hint="Quarantine moves files only within one file system or bucket. Run without quarantine.",
            )
