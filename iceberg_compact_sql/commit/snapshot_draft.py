"""A snapshot before it is written: its manifests, kept or to be written, and what its summary counts."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
)
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.typedef import Record

from iceberg_compact_sql.pyiceberg_internals.manifest_columns import read_ahead
from iceberg_compact_sql.pyiceberg_internals.manifest_entries import CONTENT_SIZE, read_entries
from iceberg_compact_sql.pyiceberg_internals.manifest_lists import read_manifests


@dataclass(frozen=True, slots=True)
class Head:
    """The head of a branch as the catalog had it when this attempt began."""

    table: Table
    branch: str
    snapshot: Snapshot
    manifests: tuple[ManifestFile, ...]

    @property
    def metadata(self) -> TableMetadata:
        return self.table.metadata

    def of_content(self, content: ManifestContent) -> list[ManifestFile]:
        return [manifest for manifest in self.manifests if manifest.content == content]


@dataclass(frozen=True, slots=True)
class ManifestDraft:
    """A manifest to be written; drafts with the same `reuse_key` in two attempts of one commit are the same file.

    `entries` may be a function: the entries are then only in memory while the manifest is written.
    """

    content: ManifestContent
    spec_id: int
    entries: Sequence[ManifestEntry] | Callable[[], Sequence[ManifestEntry]] = field(repr=False)
    reuse_key: Hashable = None


@dataclass(frozen=True, slots=True)
class FileFacts:
    """The fields of a file that a summary counts; smaller than a manifest entry with its column statistics."""

    path: str
    content: DataFileContent
    spec_id: int
    partition: Record
    record_count: int
    # Of a deletion vector: only its part of the Puffin file.
    size_bytes: int
    is_vector: bool = False

    @classmethod
    def of(cls, file: DataFile) -> FileFacts:
        is_vector = file.content == DataFileContent.POSITION_DELETES and file.file_format == FileFormat.PUFFIN
        own_bytes: int | None = file[CONTENT_SIZE] if is_vector else None
        return cls(
            file.file_path,
            file.content,
            file.spec_id,
            file.partition,
            file.record_count,
            file.file_size_in_bytes if own_bytes is None else own_bytes,
            is_vector,
        )


@dataclass(frozen=True, slots=True)
class SnapshotDraft:
    """All manifests of a new snapshot: kept ones by reference, others to be written.

    `added` and `removed` are what the summary counts; `properties` goes into the summary as it is.
    """

    manifests: Sequence[ManifestFile | ManifestDraft]
    added: Sequence[FileFacts] = ()
    removed: Sequence[FileFacts] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    # Data of the builder, given back with the draft that landed.
    tag: Any = None


class ManifestReader:
    """Reads manifests and caches small ones: they never change, so a second attempt on a new head reads little.

    The cache is bounded: entries with column statistics of a large table would fill the driver's memory.
    """

    def __init__(self, max_cached_entries: int = 50_000) -> None:
        self._cached: dict[str, list[ManifestEntry]] = {}
        self._free_entries = max_cached_entries

    def entries(self, head: Head, manifest: ManifestFile) -> list[ManifestEntry]:
        """Return the live entries with inherited sequence numbers; callers must not change them."""
        entries = self._cached.get(manifest.manifest_path)
        return self._cache(manifest, read_entries(manifest, head.table.io)) if entries is None else entries

    def all_entries(
        self, head: Head, manifests: Sequence[ManifestFile]
    ) -> Iterator[tuple[ManifestFile, list[ManifestEntry]]]:
        """Yield the manifests in order with their live entries; several manifests are read at the same time."""
        missing = {m.manifest_path: m for m in manifests if m.manifest_path not in self._cached}
        reads = read_ahead(list(missing.values()), head.table.io)
        for manifest in manifests:
            if missing.pop(manifest.manifest_path, None) is not None:
                _, contents = next(reads)
                yield manifest, self._cache(manifest, read_entries(manifest, contents()))
            else:
                yield manifest, self.entries(head, manifest)

    def _cache(self, manifest: ManifestFile, entries: list[ManifestEntry]) -> list[ManifestEntry]:
        if len(entries) <= self._free_entries:
            self._free_entries -= len(entries)
            self._cached[manifest.manifest_path] = entries
        return entries


def read_head(table: Table, branch: str) -> Head | None:
    """Return the head of a branch of a freshly loaded table; None if there is no such branch."""
    snapshot = table.metadata.snapshot_by_name(branch)
    if snapshot is None:
        return None
    manifests = tuple(read_manifests(table.io, snapshot.manifest_list))
    return Head(table, branch, snapshot, manifests)


def has_live_files(manifest: ManifestFile) -> bool:
    """Whether a manifest holds more than DELETED entries of earlier snapshots."""
    return manifest.has_added_files() or manifest.has_existing_files()


def existing_entry(entry: ManifestEntry) -> ManifestEntry:
    """Return an entry as EXISTING for another manifest: all fields and both sequence numbers stay."""
    return _entry(
        ManifestEntryStatus.EXISTING,
        entry.snapshot_id,
        entry.sequence_number,
        entry.file_sequence_number,
        entry.data_file,
    )


def deleted_entry(entry: ManifestEntry, snapshot_id: int) -> ManifestEntry:
    """Return an entry as DELETED by a snapshot."""
    return _entry(
        ManifestEntryStatus.DELETED, snapshot_id, entry.sequence_number, entry.file_sequence_number, entry.data_file
    )


def added_entry(file: DataFile, snapshot_id: int, sequence_number: int | None) -> ManifestEntry:
    """Return an ADDED entry. The file sequence number is inherited; the data sequence number only when None."""
    return _entry(ManifestEntryStatus.ADDED, snapshot_id, sequence_number, None, file)


def _entry(status: ManifestEntryStatus, *values: Any) -> ManifestEntry:
    return ManifestEntry(status, *values)
