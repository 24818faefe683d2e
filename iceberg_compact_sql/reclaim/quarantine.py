"""Files put aside instead of deleted, and lists of deletions under way.

Both live under `<metadata location>/_quarantine`; the underscore keeps Iceberg's own orphan removal away from it.
`<run>/moved.json` says what a run put aside and until when; `<run>.pending.json` says what a run is about to delete, so
that the next run finishes what a crash or a failed delete left over.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pyiceberg.table.metadata import TableMetadata

from iceberg_compact_sql import events
from iceberg_compact_sql.errors import IcebergCompactError, UnsupportedError
from iceberg_compact_sql.reclaim.reachability import FileKind, NeededFile
from iceberg_compact_sql.storage.locations import join, relative_to, split_location
from iceberg_compact_sql.storage.stores import Stores

FOLDER = "_quarantine"
_MOVED = "moved.json"
_PENDING = ".pending.json"


@dataclass(frozen=True, slots=True)
class MovedFile:
    """A file put aside: where it was and where it is."""

    original: str
    aside: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class QuarantinedRun:
    """What one run put aside, and when it may go for good."""

    manifest: str
    delete_after_ms: int
    files: tuple[MovedFile, ...]


@dataclass(frozen=True, slots=True)
class PendingDeletes:
    """What an earlier run meant to delete and did not finish."""

    journal: str
    files: tuple[NeededFile, ...]


def metadata_root(metadata: TableMetadata) -> str:
    """Where the table's metadata files are written."""
    return metadata.properties.get("write.metadata.path") or join(metadata.location, "metadata")


def quarantine_root(metadata: TableMetadata) -> str:
    """Where this table's quarantine is; nothing below it counts as an orphan."""
    return join(metadata_root(metadata), FOLDER)


def new_run_id() -> str:
    """A name for one run's quarantine and journal; never the same twice."""
    return uuid.uuid4().hex


def put_aside(
    stores: Stores, metadata: TableMetadata, files: Sequence[NeededFile], *, run_id: str, now_ms: int, keep_ms: int
) -> dict[str, str]:
    """Move files into quarantine; returns the reason for each path that could not be moved.

    What is moved is written down first, so that an interrupted run can be taken back too.
    """
    root = quarantine_root(metadata)
    refuse_other_stores(metadata, files)
    moves = [
        MovedFile(file.path, join(root, run_id, f"{at}-{file.path.rsplit('/', 1)[-1]}"), file.size_bytes)
        for at, file in enumerate(files)
    ]
    listing = {
        "moved_at_ms": now_ms,
        "delete_after_ms": now_ms + keep_ms,
        "files": [[move.original, move.aside, move.size_bytes] for move in moves],
    }
    stores.write(join(root, run_id, _MOVED), json.dumps(listing).encode())

    def move(item: MovedFile) -> tuple[str, str | None]:
        events.reach("reclaim.move", path=item.original)
        return item.original, _try_move(stores, item.original, item.aside)

    return {path: reason for path, reason in stores.each(move, moves) if reason is not None}


def runs(stores: Stores, metadata: TableMetadata) -> tuple[list[QuarantinedRun], list[PendingDeletes]]:
    """Every quarantine and every unfinished deletion of a table, from one listing."""
    quarantined: list[QuarantinedRun] = []
    pending: list[PendingDeletes] = []
    for file in stores.walk(quarantine_root(metadata)):
        if not file.path.endswith(("/" + _MOVED, _PENDING)):
            continue
        try:
            said = _parsed(stores, file.path)
        except FileNotFoundError:
            # Another run has finished with it since it was listed.
            continue
        if file.path.endswith("/" + _MOVED):
            moved = tuple(MovedFile(*row) for row in said["files"])
            quarantined.append(QuarantinedRun(file.path, said["delete_after_ms"], moved))
        else:
            pending.append(PendingDeletes(file.path, tuple(NeededFile(p, FileKind(k), b) for p, k, b in said)))
    return quarantined, pending


def not_yet_deleted(stores: Stores, pending: Iterable[PendingDeletes]) -> list[PendingDeletes]:
    """Unfinished deletions with only the files that are still there: what the interrupted run did is done."""
    rest = []
    for one in pending:
        states = stores.each(lambda file: stores.stat(file.path), one.files)
        files = tuple(file for file, state in zip(one.files, states, strict=True) if state is not None)
        rest.append(PendingDeletes(one.journal, files))
    return rest


def _parsed(stores: Stores, path: str) -> Any:
    content = stores.read(path)
    try:
        return json.loads(content)
    except ValueError as error:
        raise IcebergCompactError(
            f"{path}, which says what was put aside or is being deleted, is damaged ({error})",
            hint="Restore it, or move it away: then remove_orphans finds what it listed.",
        ) from error


def write_pending(stores: Stores, metadata: TableMetadata, run_id: str, files: Iterable[NeededFile]) -> str:
    """Write down what is about to be deleted; returns the journal's path."""
    journal = join(quarantine_root(metadata), run_id + _PENDING)
    stores.write(journal, json.dumps([[f.path, f.kind.value, f.size_bytes] for f in files]).encode())
    return journal


def purge(stores: Stores, quarantined: Iterable[QuarantinedRun], now_ms: int) -> int:
    """Delete for good what is past its time; returns how many files went."""
    gone = 0
    for run in quarantined:
        if run.delete_after_ms <= now_ms:
            failures = stores.delete(move.aside for move in run.files)
            gone += len(run.files) - len(failures)
            if not failures:
                stores.delete([run.manifest])
    return gone


def still_aside(stores: Stores, quarantined: Iterable[QuarantinedRun]) -> Iterator[MovedFile]:
    """The files that `restore` would bring back, or find their place taken; changes nothing."""
    for run in quarantined:
        for item, state in zip(run.files, stores.each(lambda one: stores.stat(one.aside), run.files), strict=True):
            if state is not None:
                yield item


def restore(stores: Stores, quarantined: Iterable[QuarantinedRun]) -> Iterator[tuple[MovedFile, bool]]:
    """Bring every file back to where it was; one whose place is taken stays aside, and so does its run's listing."""
    for run in quarantined:

        def back(item: MovedFile) -> tuple[MovedFile, bool | None]:
            if stores.stat(item.aside) is None:
                # Never moved, or brought back by a run that was interrupted.
                return item, None
            if stores.stat(item.original) is not None:
                return item, False
            return item, _try_move(stores, item.aside, item.original) is None

        complete = True
        for moved, outcome in stores.each(back, run.files):
            if outcome is not None:
                complete = complete and outcome
                yield moved, outcome
        if complete:
            stores.delete([run.manifest])


def _try_move(stores: Stores, source: str, target: str) -> str | None:
    try:
        stores.move(source, target)
    except FileNotFoundError:
        return None
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def refuse_other_stores(metadata: TableMetadata, files: Iterable[NeededFile]) -> None:
    """Refuse files that are not on the file system or bucket of the table's metadata: moving them would copy them."""
    place = split_location(quarantine_root(metadata))
    top = place._replace(path="")
    for file in files:
        if relative_to(top, split_location(file.path)) is None:
            raise UnsupportedError(
                f"{file.path} is not on the store of the table's metadata ({place.scheme}://{place.authority})",
                argument="quarantine",
                hint="Files are put aside on one file system or bucket only; run without quarantine.",
            )
