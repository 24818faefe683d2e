"""The files that snapshots need: manifest lists, manifests, data and delete files, statistics.

A manifest list or manifest that several snapshots share is read once. One that cannot be read, or whose length, file
count or row count differs from its list, stops the run with an error: no file is deleted on a guess.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from iceberg_compact_sql import events
from iceberg_compact_sql.errors import IcebergCompactError
from iceberg_compact_sql.pyiceberg_internals.avro.read_columns import read_columns, read_header
from iceberg_compact_sql.storage.same_file import forget_links, stored_key
from iceberg_compact_sql.storage.stores import Stores
from iceberg_compact_sql.table.snapshot_counts import summary_counts_files

# Field ids of the specification. Manifest list: path, length, spec; then the counts of existing, added and deleted
# files and rows, in the order of an entry's status. Manifest entry: status, content, path, size, rows.
_LIST_FIELDS = (500, 501, 502, 505, 504, 506, 513, 512, 514)
_ENTRY_FIELDS = (0, 134, 100, 104, 103)
_DELETED = 2
_STATES = ("existing", "added", "deleted")


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
    """A manifest as a manifest list names it.

    `counts` are files, then rows, each existing, added and deleted; None if a version 1 list has no counts.
    """

    path: str
    size_bytes: int
    spec_id: int
    counts: tuple[int | None, ...] = (None,) * 6


class Reachability:
    """Reads the manifest lists and manifests of one table, each list once; memory is linear in the number of paths."""

    def __init__(self, stores: Stores) -> None:
        forget_links()
        self._stores = stores
        self._manifests: dict[str, ManifestRef] = {}
        self._keys: dict[str, str] = {}
        self._lists: dict[str, tuple[int, tuple[str, ...]]] = {}
        self._list_ids: dict[str, tuple[int | None, int | None]] = {}

    def manifests_of(self, snapshots: Iterable[Snapshot]) -> dict[str, ManifestRef]:
        """Return the manifests of the snapshots, by `stored_key`."""
        wanted = list(snapshots)
        self._read_lists(wanted)
        return {key: self._manifests[key] for snapshot in wanted for key in self._lists[snapshot.manifest_list][1]}

    def lists_of(self, snapshots: Iterable[Snapshot]) -> Iterator[NeededFile]:
        """Return the manifest lists of the snapshots, with their sizes."""
        wanted = list(snapshots)
        self._read_lists(wanted)
        for snapshot in wanted:
            size_bytes = self._lists[snapshot.manifest_list][0]
            yield NeededFile(snapshot.manifest_list, FileKind.MANIFEST_LIST, size_bytes)

    def ids_in_list(self, snapshot: Snapshot) -> tuple[int | None, int | None]:
        """Return the ids of the snapshot and its parent in its manifest list; None if the list does not have them."""
        self._read_lists([snapshot])
        return self._list_ids[snapshot.manifest_list]

    def needed_among(self, metadata: TableMetadata, paths: Iterable[str]) -> set[str]:
        """Return the given paths that any snapshot, or the metadata itself, names."""
        wanted: dict[str, list[str]] = {}
        for path in paths:
            wanted.setdefault(stored_key(path), []).append(path)
        manifests = self.manifests_of(metadata.snapshots)
        named = [entry.metadata_file for entry in metadata.metadata_log]
        named += [snapshot.manifest_list for snapshot in metadata.snapshots]
        named += [manifest.path for manifest in manifests.values()]
        named += [file.path for file in statistics_of(metadata)]
        keys = {stored_key(path) for path in named}
        keys.update(k for file in self.content_of(manifests.values()) if (k := stored_key(file.path)) in wanted)
        return {path for key in keys for path in wanted.get(key, ())}

    def content_of(self, manifests: Iterable[ManifestRef]) -> Iterator[NeededFile]:
        """Return the live data and delete files of manifests, one for each entry."""
        for _, file in self.entries_of(manifests):
            yield file

    def entries_of(self, manifests: Iterable[ManifestRef]) -> Iterator[tuple[ManifestRef, NeededFile]]:
        """Return the live files of manifests, each with its manifest.

        Counts are compared at the end of each manifest, so a caller must read all files before it deletes any.
        """
        wanted = list(manifests)
        events.reach("reclaim.read_manifests", count=len(wanted))
        for manifest, content in self._contents(wanted):
            events.stop_if_cancelled()
            try:
                if len(content) != manifest.size_bytes:
                    raise ValueError(f"it has {len(content)} bytes, its list says {manifest.size_bytes}")
                counts = [0] * 6
                for status, kind, path, size_bytes, rows in read_columns(content, _ENTRY_FIELDS):
                    if status not in (0, 1, _DELETED) or not path or not isinstance(path, str):
                        raise ValueError(f"it has an entry with the status {status} and the path {path!r}")
                    counts[status] += 1
                    counts[3 + status] += rows
                    if status != _DELETED:
                        yield manifest, NeededFile(path, _CONTENT[kind or 0], size_bytes)
                _compare_counts(counts, manifest.counts)
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
                if len(set(keys)) < len(keys):
                    raise ValueError("it names a manifest twice")
                self._list_ids[path] = _ids_in(read_header(content))
                if not keys and summary_counts_files(snapshot):
                    raise ValueError("it names no manifest, its snapshot counts files")
            except Exception as error:
                raise _unreadable("manifest list", path, error) from error
            self._lists[path] = (len(content), keys)

    def _remember(self, path: str, size_bytes: int, spec_id: int, *counts: int | None) -> str:
        if not path or not isinstance(path, str) or size_bytes is None:
            raise ValueError(f"it gives a manifest the path {path!r} and the length {size_bytes}")
        key = stored_key(path)
        known = self._manifests.get(key)
        if known is None:
            self._manifests[key] = ManifestRef(path, size_bytes, spec_id, counts)
            self._keys[key] = key
        elif known.size_bytes != size_bytes or _differ(known.counts, counts):
            raise ValueError(f"it gives manifest {path} another length or other counts than another list does")
        # Return the stored string, so that all lists share one copy.
        return self._keys[key]


def statistics_of(metadata: TableMetadata, snapshot_ids: frozenset[int] | None = None) -> Iterator[NeededFile]:
    """Return statistics and partition statistics files of all snapshots, or of the given ones."""
    for file in (*metadata.statistics, *metadata.partition_statistics):
        if snapshot_ids is None or file.snapshot_id in snapshot_ids:
            yield NeededFile(file.statistics_path, FileKind.STATISTICS, file.file_size_in_bytes)


def _differ(counts: Sequence[int | None], others: Sequence[int | None]) -> bool:
    pairs = zip(counts, others, strict=True)
    return any(None not in pair and pair[0] != pair[1] for pair in pairs)


def _compare_counts(counts: Sequence[int], listed: Sequence[int | None]) -> None:
    for index, (actual, expected) in enumerate(zip(counts, listed, strict=True)):
        if expected is not None and actual != expected:
            what = f"{_STATES[index % 3]} {'files' if index < 3 else 'rows'}"
            raise ValueError(f"it has {actual} {what}, its list says {expected}")


def _ids_in(header: Mapping[str, bytes]) -> tuple[int | None, int | None]:
    """Return the ids of the snapshot and its parent in the header of a manifest list; the header may lack them."""
    texts = (header.get(name, b"").decode() for name in ("snapshot-id", "parent-snapshot-id"))
    snapshot_id, parent_id = (int(text) if text.lstrip("-").isdigit() else None for text in texts)
    return snapshot_id, parent_id


def _unreadable(what: str, path: str, error: BaseException) -> IcebergCompactError:
    return IcebergCompactError(
        f"{what} {path} cannot be read ({type(error).__name__}: {error}); nothing was deleted",
        hint="Without it, the needed files are unknown. Restore it, or expire with keep_files => true.",
    )
