"""Checks for damaged metadata, before files are deleted because no metadata names them.

A flipped bit may leave a manifest readable and change a path in it. The live file then looks unneeded. The rule: a file
is deleted only if every file that the kept manifests name exists with the length that they give. Only named files on
the stores of the deleted files are looked up. A path with a damaged scheme or authority still protects its file,
because it may be the same file (`storage.same_file.loose_key`). Damage can also move the border between authority and
path (`file://?tmp/x`), so a named path on another store must differ from all deleted paths in more than two characters.
`reachability` checks the rest while it reads: lengths and counts of manifests, states of entries, ids of lists.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH

from iceberg_compact_sql.errors import IcebergCompactError
from iceberg_compact_sql.reclaim.reachability import FileKind, ManifestRef, NeededFile, Reachability, statistics_of
from iceberg_compact_sql.storage.locations import join, split_location, store_of
from iceberg_compact_sql.storage.protocol import StoredFile
from iceberg_compact_sql.storage.same_file import loose_key
from iceberg_compact_sql.storage.stores import Stores

# With at least this many files in one folder, listing the folder takes fewer requests than one for each file.
_LIST_FROM = 500
_WINDOW = 50_000
_MOST_DIFFERENCES = 2


@dataclass(frozen=True, slots=True)
class NamedFile:
    """A file that metadata names, and a text for the manifest or the metadata that names it."""

    file: NeededFile
    named_by: str


def refuse_missing_files(
    stores: Stores, named: Iterable[NamedFile], to_delete: Iterable[str], root: str | None = None
) -> None:
    """Refuse if a named file on a store of the files to delete is missing or has the wrong length.

    A named file on another store is refused if its path is almost that of a file to delete, or of one below `root`.
    """
    paths = list(to_delete)
    checked_stores = {store_of(split_location(path)) for path in paths}
    similar: _SimilarPaths | None = None
    window: list[NamedFile] = []
    for item in named:
        if store_of(split_location(item.file.path)) not in checked_stores:
            similar = similar or _SimilarPaths(paths)
            path = similar.of(item.file.path)
            if path is None and root is not None and _is_almost_below(root, item.file.path):
                path = root
            if path is not None:
                raise _damaged(item, f"names {item.file.path}, which is almost {path}")
            continue
        window.append(item)
        if len(window) == _WINDOW:
            _check_window(stores, window)
            window = []
    _check_window(stores, window)


class _SimilarPaths:
    """Finds a path of the same name and length whose folder differs in at most two characters."""

    def __init__(self, paths: Iterable[str]) -> None:
        self._by_name: dict[tuple[int, str], list[str]] = defaultdict(list)
        for path in paths:
            name = path.rpartition("/")[2]
            self._by_name[len(path), name].append(path)

    def of(self, damaged: str) -> str | None:
        candidates = self._by_name.get((len(damaged), damaged.rpartition("/")[2]), ())
        return next((path for path in candidates if _is_almost(path, damaged)), None)


def _is_almost_below(root: str, path: str) -> bool:
    return len(path) > len(root) and _is_almost(root, path[: len(root)])


def _is_almost(path: str, other: str) -> bool:
    """Whether two texts of one length differ in few characters, and not only in scheme and authority.

    The same path on another store is no sign of damage: `prefix_mismatch_mode` decides about it.
    """
    return 0 < _differences(path, other) <= _MOST_DIFFERENCES and loose_key(path) != loose_key(other)


def _differences(path: str, other: str) -> int:
    return sum(a != b for a, b in zip(path, other, strict=True))


def refuse_damage(stores: Stores, reader: Reachability, metadata: TableMetadata, to_delete: Iterable[str]) -> None:
    """Refuse to delete files that nothing names if the metadata of the table's snapshots is damaged."""
    paths = list(to_delete)
    repeated: list[NamedFile] = []
    refuse_missing_files(stores, named_statistics(metadata), paths)
    manifests = reader.manifests_of(metadata.snapshots).values()
    refuse_missing_files(stores, named_by_manifests(reader, manifests, repeated), paths)
    refuse_similar_paths(repeated, paths)


def named_by_manifests(
    reader: Reachability, manifests: Iterable[ManifestRef], repeated: list[NamedFile] | None = None
) -> Iterator[NamedFile]:
    """Return the live files of manifests; files that one manifest names twice are added to `repeated`."""
    seen: set[str] = set()
    reading = ""
    for manifest, file in reader.entries_of(manifests):
        if manifest.path != reading:
            reading, seen = manifest.path, set()
        named = NamedFile(file, f"manifest {manifest.path}")
        if repeated is not None and file.path in seen:
            repeated.append(named)
        seen.add(file.path)
        yield named


def named_statistics(metadata: TableMetadata, snapshot_ids: frozenset[int] | None = None) -> Iterator[NamedFile]:
    """Return the statistics files of all snapshots, or of the given ones."""
    for file in statistics_of(metadata, snapshot_ids):
        yield NamedFile(file, "the table's metadata")


def refuse_similar_paths(repeated_files: Iterable[NamedFile], to_delete: Iterable[str]) -> None:
    """Refuse if a manifest names a file twice and a file whose path differs in one character would be deleted.

    A flipped bit turns `00000-0-x.parquet` into `00000-1-x.parquet`, which may exist with the same length.
    """
    repeated = list(repeated_files)
    if not repeated:
        return
    by_length: dict[int, list[str]] = defaultdict(list)
    for path in to_delete:
        by_length[len(path)].append(path)
    for item in repeated:
        for path in by_length.get(len(item.file.path), ()):
            if _differences(path, item.file.path) == 1:
                raise _damaged(item, f"names {item.file.path} twice, and nothing names {path}")


def refuse_broken_refs(metadata: TableMetadata) -> None:
    """Refuse refs whose snapshot is missing: the snapshots that they protect would count as expired."""
    known = {snapshot.snapshot_id for snapshot in metadata.snapshots}
    for name, ref in metadata.refs.items():
        if ref.snapshot_id not in known:
            raise IcebergCompactError(
                f"{ref.snapshot_ref_type} {name} names snapshot {ref.snapshot_id}, which the metadata does not have; "
                "nothing was changed",
                hint="The metadata is damaged, or another tool left the ref behind. Drop or move the ref first.",
            )
    main = metadata.refs.get(MAIN_BRANCH)
    if main is not None and main.snapshot_id != metadata.current_snapshot_id:
        raise IcebergCompactError(
            f"branch main names snapshot {main.snapshot_id}, the metadata's current snapshot is "
            f"{metadata.current_snapshot_id}; nothing was changed",
            hint="The metadata file is damaged. Register the table from an older metadata file of its log.",
        )


def refuse_changed_snapshots(metadata: TableMetadata, reader: Reachability) -> None:
    """Refuse snapshots whose id or parent differs from their manifest list: the wrong history would expire."""
    known = {snapshot.snapshot_id for snapshot in metadata.snapshots}
    for snapshot in metadata.snapshots:
        snapshot_id, parent_id = reader.ids_in_list(snapshot)
        if snapshot_id is None:
            continue
        parent = snapshot.parent_snapshot_id
        if snapshot_id == snapshot.snapshot_id:
            # pyiceberg removes the parent id of a snapshot whose parent expired.
            damaged = None not in (parent, parent_id) and parent != parent_id
        else:
            damaged = snapshot_id not in known
        if damaged:
            raise IcebergCompactError(
                f"the metadata gives snapshot {snapshot.snapshot_id} the parent {parent}, its manifest list "
                f"{snapshot.manifest_list} is of snapshot {snapshot_id} with the parent {parent_id}; "
                "nothing was changed",
                hint="One of the two is damaged. Register the table from an older metadata file of its log.",
            )


def _check_window(stores: Stores, window: Sequence[NamedFile]) -> None:
    states = _states(stores, [item.file.path for item in window])
    for item in window:
        state = states[item.file.path]
        if state is None:
            raise _damaged(item, f"names {item.file.path}, which does not exist")
        # Some writers record a wrong length for statistics files; readers do not use it.
        if state.size_bytes != item.file.size_bytes and item.file.kind is not FileKind.STATISTICS:
            raise _damaged(
                item,
                f"gives {item.file.path} a length of {item.file.size_bytes} bytes, the file has {state.size_bytes}",
            )


def _states(stores: Stores, paths: Sequence[str]) -> dict[str, StoredFile | None]:
    folders: dict[str, list[str]] = defaultdict(list)
    for path in paths:
        folders[path.rpartition("/")[0]].append(path)
    states: dict[str, StoredFile | None] = {}
    single: list[str] = []
    for folder, inside in folders.items():
        if len(inside) < _LIST_FROM or split_location(folder).is_local:
            single += inside
            continue
        try:
            files, _ = stores.of(folder).level(folder)
        except OSError:
            single += inside
            continue
        listed = {file.path: file for file in files}
        for path in inside:
            file = listed.get(join(folder, path.rpartition("/")[2]))
            if file is None:
                # The listing spells names with `//` or another Unicode normal form differently.
                single.append(path)
            else:
                states[path] = file
    # For local files, threads cost more than they save.
    local = all(split_location(path).is_local for path in single)
    single_states = map(_local_state, single) if local else stores.each(stores.stat, single)
    states.update(zip(single, single_states, strict=True))
    return states


def _damaged(item: NamedFile, what: str) -> IcebergCompactError:
    return IcebergCompactError(
        f"{item.named_by} {what}; no file was deleted",
        hint="The metadata is damaged or a file of the table is lost. Restore it, or remove the file from the table, "
        "before files are deleted; expire_snapshots with keep_files => true changes metadata only.",
    )


def _local_state(path: str) -> StoredFile | None:
    """Return the size and time of a local file; of a symbolic link those of its target."""
    try:
        status = Path(split_location(path).local_path).stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return StoredFile(path, status.st_size, status.st_mtime_ns // 1_000_000)
