"""Journals of deletions: files that a run will delete, so that the next run can finish after a crash.

A journal allows the deletion of a file only while the journal exists and the current metadata does not need the file.
`expire_snapshots` checks each file against freshly loaded metadata; `restore_quarantine` closes journals first.
A journal of a run with quarantine forbids every run to delete its files at once: they are moved to quarantine.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from pyiceberg.table.metadata import TableMetadata

from iceberg_compact_sql.reclaim.reachability import FileKind, NeededFile
from iceberg_compact_sql.reclaim.record_files import own_folder, write_record
from iceberg_compact_sql.storage.locations import join
from iceberg_compact_sql.storage.same_file import stored_key
from iceberg_compact_sql.storage.stores import Stores

SUFFIX = ".pending.json"


@dataclass(frozen=True, slots=True)
class PendingDeletes:
    """Files of an unfinished deletion; with `keep_ms` they were to be moved to quarantine."""

    journal: str
    files: tuple[NeededFile, ...]
    keep_ms: int | None = None

    @property
    def run_id(self) -> str:
        return self.journal.rsplit("/", 1)[-1].removesuffix(SUFFIX)


def write_pending(
    stores: Stores, metadata: TableMetadata, run_id: str, files: Iterable[NeededFile], keep_ms: int | None = None
) -> str:
    """Write the journal of files that will be deleted; returns its path."""
    journal = join(own_folder(metadata), run_id + SUFFIX)
    _write(stores, metadata, journal, files, keep_ms)
    return journal


def parse_journal(path: str, record: Any) -> PendingDeletes:
    """Return the journal in a record; in earlier versions a journal is a bare list of files."""
    parsed = record if isinstance(record, dict) else {"files": record}
    files = tuple(NeededFile(file, FileKind(kind), size) for file, kind, size in parsed["files"])
    return PendingDeletes(path, files, parsed.get("keep_ms"))


def not_yet_deleted(stores: Stores, pending: Iterable[PendingDeletes]) -> list[PendingDeletes]:
    """Return unfinished deletions with only the files that still exist.

    A journal that was deleted since it was read is left out. It is checked after its files, because
    `restore_quarantine` deletes journals before it restores files: a restored file never has a journal here.
    """
    rest = []
    for entry in pending:
        are_gone = list(stores.each(lambda file: stores.is_gone(file.path), entry.files))
        files = tuple(file for file, is_gone in zip(entry.files, are_gone, strict=True) if not is_gone)
        if stores.stat(entry.journal) is not None:
            rest.append(PendingDeletes(entry.journal, files, entry.keep_ms))
    return rest


def keep_times(pending: Iterable[PendingDeletes]) -> dict[str, int]:
    """Return how long each file of unfinished runs with quarantine is kept, by `stored_key`.

    Whoever removes such a file moves it to quarantine: the user of the unfinished run can then restore it.
    """
    return {stored_key(file.path): entry.keep_ms for entry in pending for file in entry.files if entry.keep_ms}


def close_restored(
    stores: Stores,
    metadata: TableMetadata,
    pending: Iterable[PendingDeletes],
    run_ids: Collection[str],
    restored: Iterable[str],
) -> None:
    """Delete the journals of runs whose files are restored, and remove restored files from all other journals.

    A run with quarantine loses its journal even if it moved no file: the user wants its files back.
    """
    restored_keys = {stored_key(path) for path in restored}
    for entry in pending:
        if entry.keep_ms is not None or entry.run_id in run_ids:
            stores.delete([entry.journal])
            continue
        rest = [file for file in entry.files if stored_key(file.path) not in restored_keys]
        if not rest:
            stores.delete([entry.journal])
        elif len(rest) < len(entry.files):
            _write(stores, metadata, entry.journal, rest, entry.keep_ms)


def _write(
    stores: Stores, metadata: TableMetadata, journal: str, files: Iterable[NeededFile], keep_ms: int | None
) -> None:
    rows = [[file.path, file.kind.value, file.size_bytes] for file in files]
    write_record(stores, journal, metadata, rows, keep_ms=keep_ms)
