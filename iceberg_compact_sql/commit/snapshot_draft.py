"""A snapshot before it is written: what stays, what is rewritten, what is new, and how the summary counts it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    read_manifest_list,
)
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.typedef import Record

from iceberg_compact_sql.pyiceberg_internals.manifest_entries import read_entries


@dataclass(frozen=True, slots=True)
class Head:
    """The branch as the catalog had it when this try began."""

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
    """A manifest to be written; drafts with the same `reuse_key` in two tries of one commit are the same file.

    `entries` may be a function: the entries are then only in memory while the manifest is written.
    """

    content: ManifestContent
    spec_id: int
    entries: Sequence[ManifestEntry] | Callable[[], Sequence[ManifestEntry]] = field(repr=False)
    reuse_key: Hashable = None


@dataclass(frozen=True, slots=True)
class FileFacts:
    """What a summary counts of a file; small, unlike a manifest entry with its column statistics."""

    path: str
    content: DataFileContent
    spec_id: int
    partition: Record
    record_count: int
    file_size_in_bytes: int

    @classmethod
    def of(cls, file: DataFile) -> FileFacts:
        return cls(
            file.file_path,
            file.content,
            file.spec_id,
            file.partition,
            file.record_count,
            file.file_size_in_bytes,
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
    # What the builder wants to know again about the draft that landed.
    tag: Any = None


class ManifestReader:
    """Reads manifests, and small ones once: they never change, so a second try on a new head reads little.

    What is kept is bounded: entries with column statistics of a large table would fill the driver.
    """

    def __init__(self, max_kept_entries: int = 50_000) -> None:
        self._entries: dict[str, list[ManifestEntry]] = {}
        self._room = max_kept_entries

    def entries(self, head: Head, manifest: ManifestFile) -> list[ManifestEntry]:
        """Live entries with inherited sequence numbers; callers do not change them."""
        found = self._entries.get(manifest.manifest_path)
        if found is None:
            found = read_entries(manifest, head.table.io)
            if len(found) <= self._room:
                self._room -= len(found)
                self._entries[manifest.manifest_path] = found
        return found


def read_head(table: Table, branch: str) -> Head | None:
    """The head of a branch of a freshly loaded table; None if there is no such branch."""
    snapshot = table.metadata.snapshot_by_name(branch)
    if snapshot is None:
        return None
    manifests = tuple(read_manifest_list(table.io.new_input(snapshot.manifest_list)))
    return Head(table, branch, snapshot, manifests)


def has_live_files(manifest: ManifestFile) -> bool:
    """False when a manifest holds only tombstones of earlier snapshots."""
    return manifest.has_added_files() or manifest.has_existing_files()


def existing_entry(entry: ManifestEntry) -> ManifestEntry:
    """An entry carried over into another manifest: all fields and both sequence numbers stay."""
    return _entry(
        ManifestEntryStatus.EXISTING,
        entry.snapshot_id,
        entry.sequence_number,
        entry.file_sequence_number,
        entry.data_file,
    )


def deleted_entry(entry: ManifestEntry, snapshot_id: int) -> ManifestEntry:
    """The tombstone that the removing snapshot leaves."""
    return _entry(
        ManifestEntryStatus.DELETED, snapshot_id, entry.sequence_number, entry.file_sequence_number, entry.data_file
    )


def added_entry(file: DataFile, snapshot_id: int, sequence_number: int | None) -> ManifestEntry:
    """A new file; the file sequence number is always inherited, the data sequence number only when None."""
    return _entry(ManifestEntryStatus.ADDED, snapshot_id, sequence_number, None, file)


def _entry(status: ManifestEntryStatus, *values: Any) -> ManifestEntry:
    return ManifestEntry(status, *values)
