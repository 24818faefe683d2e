"""Which files snapshots need: manifest lists, manifests, data and delete files, statistics.

A manifest list or manifest that several snapshots share is read once. One that cannot be read, or is shorter than its
list says, stops the run by name: a file that nobody was seen to need must not be deleted on a guess.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from iceberg_compact_sql import events
from iceberg_compact_sql.errors import IcebergCompactError
from iceberg_compact_sql.pyiceberg_internals.avro.read_columns import read_columns
from iceberg_compact_sql.storage.locations import one_file_key, real_folder
from iceberg_compact_sql.storage.stores import Stores
from iceberg_compact_sql.table.snapshot_counts import counts_files

# Field ids of the specification: manifest list (path, length, spec) and manifest entry (status, content, path, size).
_LIST_FIELDS = (500, 501, 502)
_ENTRY_FIELDS = (0, 134, 100, 104)
_DELETED = 2


class FileKind(str, Enum):
    """What a file is to a table, as the dry run names it."""

    DATA = "data"
    POSITION_DELETE = "position delete"
    EQUALITY_DELETE = "equality delete"
    MANIFEST = "manifest"
    MANIFEST_LIST = "manifest list"
    STATISTICS = "statistics"


_CONTENT = (FileKind.DATA, FileKind.POSITION_DELETE, FileKind.EQUALITY_DELETE)


@dataclass(frozen=True, slots=True)
class NeededFile:
    """A file that some snapshot needs; `path` is exactly the text in the metadata."""

    path: str
    kind: FileKind
    size_bytes: int


@dataclass(frozen=True, slots=True)
class ManifestRef:
    """A manifest as a manifest list names it."""

    path: str
    size_bytes: int
    spec_id: int


class Reachability:
    """Reads metadata files of one table and remembers the lists that it has read; memory is linear in paths."""

    def __init__(self, stores: Stores) -> None:
        # A new run looks anew where folders lead.
        real_folder.cache_clear()
        self._stores = stores
        self._manifests: dict[str, ManifestRef] = {}
        self._keys: dict[str, str] = {}
        self._lists: dict[str, tuple[int, tuple[str, ...]]] = {}

    def manifests_of(self, snapshots: Iterable[Snapshot]) -> dict[str, ManifestRef]:
        """The manifests that any of the snapshots lists, by comparing key."""
        wanted = list(snapshots)
        self._read_lists(wanted)
        return {key: self._manifests[key] for snapshot in wanted for key in self._lists[snapshot.manifest_list][1]}

    def lists_of(self, snapshots: Iterable[Snapshot]) -> Iterator[NeededFile]:
        """The manifest lists of snapshots, with their sizes."""
        wanted = list(snapshots)
        self._read_lists(wanted)
        for snapshot in wanted:
            size_bytes = self._lists[snapshot.manifest_list][0]
            yield NeededFile(snapshot.manifest_list, FileKind.MANIFEST_LIST, size_bytes)

    def content_of(self, manifests: Iterable[ManifestRef]) -> Iterator[NeededFile]:
        """The live data and delete files of manifests, one for each entry."""
        wanted = list(manifests)
        events.reach("reclaim.read_manifests", count=len(wanted))
        for manifest, content in self._contents(wanted):
            try:
                if len(content) < manifest.size_bytes:
                    raise ValueError(f"it has {len(content)} bytes, its list says {manifest.size_bytes}")
                for status, kind, path, size_bytes in read_columns(content, _ENTRY_FIELDS):
                    if status != _DELETED:
                        yield NeededFile(path, _CONTENT[kind or 0], size_bytes)
            except Exception as error:
                raise _unreadable("manifest", manifest.path, error) from error

    def _contents(self, manifests: Sequence[ManifestRef]) -> Iterator[tuple[ManifestRef, bytes]]:
        paths = [manifest.path for manifest in manifests]
        for manifest, content in zip(manifests, self._stores.read_all(paths), strict=True):
            if isinstance(content, BaseException):
                raise _unreadable("manifest", manifest.path, content) from content
            yield manifest, content

    def _read_lists(self, snapshots: Iterable[Snapshot]) -> None:
        missing = {s.manifest_list: s for s in snapshots if s.manifest_list not in self._lists}
        for (path, snapshot), content in zip(missing.items(), self._stores.read_all(list(missing)), strict=True):
            if isinstance(content, BaseException):
                raise _unreadable("manifest list", path, content) from content
            try:
                keys = tuple(self._remember(*row) for row in read_columns(content, _LIST_FIELDS))
                if not keys and counts_files(snapshot):
                    raise ValueError("it names no manifest, its snapshot counts files")
            except Exception as error:
                raise _unreadable("manifest list", path, error) from error
            self._lists[path] = (len(content), keys)

    def _remember(self, path: str, size_bytes: int, spec_id: int) -> str:
        key = one_file_key(path)
        if key not in self._manifests:
            self._manifests[key] = ManifestRef(path, size_bytes, spec_id)
            self._keys[key] = key
        # The very text that is stored already, so that a thousand lists share it.
        return self._keys[key]


def statistics_of(metadata: TableMetadata, snapshot_ids: frozenset[int] | None = None) -> Iterator[NeededFile]:
    """Statistics and partition statistics files, of all snapshots or of some."""
    for file in (*metadata.statistics, *metadata.partition_statistics):
        if snapshot_ids is None or file.snapshot_id in snapshot_ids:
            yield NeededFile(file.statistics_path, FileKind.STATISTICS, file.file_size_in_bytes)


def _unreadable(what: str, path: str, error: BaseException) -> IcebergCompactError:
    return IcebergCompactError(
        f"{what} {path} cannot be read ({type(error).__name__}: {error}); nothing was deleted",
        hint="Without it nobody can tell which files are still needed. Restore it, or expire with keep_files => true.",
    )
