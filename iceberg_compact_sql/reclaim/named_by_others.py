"""Files that other tables and views of the catalog name: they are never deleted.

A table can name files anywhere: written under a former `write.data.path`, imported by add_files, or shared with a
table that was registered twice. So each file to delete is compared with every file that any other table of the catalog
names, in all of its snapshots. Other tables are read only if there are files to delete. The folders of a table's files
are cached by its metadata file: a table without files near the searched folder is read once for each version.

An expiry deletes files that the table itself named, in its own folders. Only a table that imported them can need them.
`naming_taken_over` reads the metadata file of each table, and the manifests of those that may have imported files:
the same table under a second name, a table whose metadata leads into these folders, and a table with a name mapping,
which add_files, snapshot and migrate set.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass

from pyiceberg.exceptions import NoSuchIcebergTableError, NoSuchNamespaceError, NoSuchTableError, NoSuchViewError
from pyiceberg.table import Table

from iceberg_compact_sql import events
from iceberg_compact_sql.catalogs.complete_metadata import require_complete_metadata
from iceberg_compact_sql.catalogs.entries import CatalogEntry, list_entries
from iceberg_compact_sql.errors import UnsupportedError
from iceberg_compact_sql.reclaim.known_files import ANY_PREFIX, Identity
from iceberg_compact_sql.reclaim.owned_roots import owned_roots
from iceberg_compact_sql.reclaim.reachability import Reachability, statistics_of
from iceberg_compact_sql.redaction import masked_logger, redact
from iceberg_compact_sql.storage.locations import Location, join, split_location
from iceberg_compact_sql.storage.same_file import common_scheme, loose_path, needed_keys, real_folder
from iceberg_compact_sql.storage.stores import Stores
from iceberg_compact_sql.table.properties import NAME_MAPPING

_log = masked_logger(__name__)
_DROPPED = (NoSuchTableError, NoSuchNamespaceError, NoSuchViewError, NoSuchIcebergTableError)
_READERS_PER_TABLE = 4
_CACHE_SIZE = 20_000

# A hadoop catalog writes `v3.metadata.json` again for a table that was dropped and created again.
_REUSED_NAME = re.compile(r"v\d+\.")

# The key is the path of a metadata file, whose content never changes unless its name is used again.
_folders_cache: dict[str, _TableFolders] = {}
_cache_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class _TableFolders:
    """The folders of a table's files: it writes to `roots`; `folders` hold all that it names, None if not read.

    `list_folders` hold its manifest lists. `has_name_mapping` means that it may have imported files of others.
    """

    uuid: str
    updated_ms: int
    roots: tuple[str, ...]
    folders: tuple[str, ...] | None
    list_folders: tuple[str, ...]
    has_name_mapping: bool

    @classmethod
    def of(cls, table: Table, folders: Iterable[str] | None = None) -> _TableFolders:
        metadata = table.metadata
        list_folders: dict[str, str] = {}
        for snapshot in metadata.snapshots:
            _widen(list_folders, _resolved(snapshot.manifest_list))
        return cls(
            str(metadata.table_uuid),
            metadata.last_updated_ms,
            owned_roots(metadata),
            None if folders is None else tuple(folders),
            tuple(list_folders.values()),
            NAME_MAPPING.name in metadata.properties,
        )

    def names_nothing_in(self, searched_folders: Iterable[str]) -> bool:
        """Whether it is certain that the table names no file in these folders."""
        if self.folders is None:
            return False
        return not any(_overlap(folder, searched) for folder in self.folders for searched in searched_folders)

    def may_have_taken_over(self, uuid: str, searched_folders: Iterable[str]) -> bool:
        """Whether the table may name files that the table with this uuid wrote to these folders."""
        near = any(
            _overlap(folder, searched) for folder in (*self.roots, *self.list_folders) for searched in searched_folders
        )
        return near or self.has_name_mapping or self.uuid == uuid


class OtherTables:
    """The other tables and views of a table's catalog; each call lists the catalog again."""

    def __init__(self, table: Table, workers: int, ignored: Collection[str] = ()) -> None:
        self._table = table
        self._workers = workers
        self._ignored = {name.strip().lower() for name in ignored}

    def naming(
        self, files: Collection[str], identity: Callable[[str], Identity], *, search_root: str | None = None
    ) -> dict[str, str]:
        """Return the files that another table or view names, each with the name of that table or view.

        Two paths that may mean the same file count as equal. With `search_root`, another table that writes there is
        refused. Raises if a table cannot be read.
        """
        if not files:
            return {}
        candidates = _Candidates(files, identity)
        return self._named_by(self._entries(), lambda entry: self._named_by_entry(entry, candidates, search_root))

    def naming_taken_over(self, files: Collection[str], identity: Callable[[str], Identity]) -> dict[str, str]:
        """Return the table's own files that another table has imported, each with the name of that table.

        A table that cannot be loaded is logged and skipped: there is no sign that it imported any file. A table that
        may have imported files and whose manifests cannot be read is refused.
        """
        if not files:
            return {}
        candidates = _Candidates(files, identity)
        try:
            entries = self._entries()
        except UnsupportedError as error:
            _log.warning("other tables are not checked for imported files: %s", error)
            return {}
        return self._named_by([e for e in entries if not e.is_view], lambda entry: self._taken_over(entry, candidates))

    def _entries(self) -> list[CatalogEntry]:
        own = tuple(self._table.name())
        return [e for e in list_entries(self._table.catalog) if e.identifier != own and not self._is_ignored(e)]

    def _named_by(self, entries: list[CatalogEntry], files_of: Callable[[CatalogEntry], set[str]]) -> dict[str, str]:
        events.reach("reclaim.other_tables", count=len(entries))
        table_of: dict[str, str] = {}
        pool = Stores(self._table.io, workers=self._workers)
        for entry, named in zip(entries, pool.each(files_of, entries), strict=True):
            table_of.update(dict.fromkeys(named, entry.shown))
        return table_of

    def _is_ignored(self, entry: CatalogEntry) -> bool:
        return entry.shown.lower() in self._ignored

    def _taken_over(self, entry: CatalogEntry, candidates: _Candidates) -> set[str]:
        table_folders = _cached_folders(entry.metadata_location)
        if table_folders is None:
            try:
                other = self._table.catalog.load_table(entry.identifier)
            except Exception as error:
                message = redact(" ".join(str(error).split()), self._table.catalog.properties)[:300]
                _log.warning("table %s is not checked for imported files: %s", entry.shown, message)
                return set()
            table_folders = _cached_folders_of(other) or _TableFolders.of(other)
            _cache_folders(other, table_folders)
        if not table_folders.may_have_taken_over(str(self._table.metadata.table_uuid), candidates.folders):
            return set()
        return self._named_by_entry(entry, candidates, None)

    def _named_by_entry(self, entry: CatalogEntry, candidates: _Candidates, search_root: str | None) -> set[str]:
        try:
            return (
                self._named_by_view(entry, candidates)
                if entry.is_view
                else self._named_by_table(entry, candidates, search_root)
            )
        except _DROPPED:
            return set()
        except UnsupportedError:
            raise
        except Exception as error:
            if self._is_broken_elsewhere(entry, error, search_root):
                return set()
            message = " ".join(redact(error, self._table.catalog.properties).split())[:300]
            kind = "view" if entry.is_view else "table"
            raise UnsupportedError(
                f"{kind} {entry.shown} cannot be read ({type(error).__name__}: {message}), so it is unknown whether it "
                "needs files here; nothing was deleted",
                argument="table",
                value=entry.shown,
                hint=f"Repair or drop it. If it has no files here, set "
                f"spark.iceberg_compact_sql.ignored_tables = {entry.shown}.",
            ) from None

    def _is_broken_elsewhere(self, entry: CatalogEntry, error: BaseException, search_root: str | None) -> bool:
        """Whether metadata of a table in another folder is missing: that table is broken and has no files here."""
        missing = isinstance(error, FileNotFoundError) or isinstance(error.__cause__, FileNotFoundError)
        location = entry.metadata_location
        if (
            not missing
            or location is None
            or search_root is None
            or not _inside(self._table.metadata.location, search_root)
        ):
            return False
        folder = location.rpartition("/")[0].removesuffix("/metadata")
        return not _overlap(folder, search_root)

    def _named_by_view(self, entry: CatalogEntry, candidates: _Candidates) -> set[str]:
        location = entry.metadata_location
        if location is None:
            location = getattr(self._table.catalog.load_view(entry.identifier), "metadata_location", None)
        return candidates.matches(location) if location else set()

    def _named_by_table(self, entry: CatalogEntry, candidates: _Candidates, search_root: str | None) -> set[str]:
        other = None
        table_folders = _cached_folders(entry.metadata_location)
        if table_folders is None:
            other = self._table.catalog.load_table(entry.identifier)
            table_folders = _cached_folders_of(other) or _TableFolders.of(other)
        if search_root is not None and table_folders.uuid != str(self._table.metadata.table_uuid):
            self._refuse_roots(entry, table_folders.roots, search_root)
        if table_folders.names_nothing_in(candidates.folders):
            return set()
        return self._read(other or self._table.catalog.load_table(entry.identifier), candidates)

    def _read(self, other: Table, candidates: _Candidates) -> set[str]:
        """Return the candidates that a table names, and cache the folders of all files that it names."""
        require_complete_metadata(other)
        events.reach("reclaim.read_other_table", table=".".join(other.name()))
        matches: set[str] = set()
        folders: dict[str, str] = {}
        for path in map(_resolved, _named_files(other)):
            matches |= candidates.matches(path)
            _widen(folders, path)
        _cache_folders(other, _TableFolders.of(other, folders.values()))
        return matches

    def _refuse_roots(self, entry: CatalogEntry, roots: Iterable[str], search_root: str) -> None:
        """Refuse a search root that another table writes to, unless that table's root contains this whole table.

        A data file does not say which table it belongs to, and no metadata names uncommitted files.
        """
        own = self._table.metadata.location
        for root in roots:
            contains_table = _inside(own, search_root) and _inside(root, own) and not _inside(own, root)
            if _overlap(root, search_root) and not contains_table:
                raise UnsupportedError(
                    f"table {entry.shown} keeps files in {root}: here they would look like orphans",
                    argument="location",
                    value=search_root,
                    hint="Give a location that holds files of this table only.",
                )


def _cached_folders(location: str | None) -> _TableFolders | None:
    """Return what is known of the table with this metadata file, which is not read."""
    if location is None or _REUSED_NAME.match(location.rpartition("/")[2]):
        return None
    return _folders_cache.get(location)


def _cached_folders_of(table: Table) -> _TableFolders | None:
    """Return what is known of a loaded table."""
    known, metadata = _folders_cache.get(table.metadata_location), table.metadata
    same = known and (known.uuid, known.updated_ms) == (str(metadata.table_uuid), metadata.last_updated_ms)
    return known if same else None


def _cache_folders(table: Table, table_folders: _TableFolders) -> None:
    with _cache_lock:
        if len(_folders_cache) >= _CACHE_SIZE:
            _folders_cache.clear()
        _folders_cache[table.metadata_location] = table_folders


class _Candidates:
    """Files to delete, for look-ups of the paths that another table names, in any spelling."""

    def __init__(self, files: Iterable[str], identity: Callable[[str], Identity]) -> None:
        self._identity = identity
        self._by_path: dict[str, list[str]] = {}
        self._names: set[str] = set()
        folders: dict[str, str] = {}
        for file in files:
            loose = identity(file).loose_path
            self._by_path.setdefault(loose, []).append(file)
            self._names.add(loose.rpartition("/")[2])
            _widen(folders, _resolved(file))
        self.folders = tuple(folders.values())

    def matches(self, path: str) -> set[str]:
        """Return the files that this path may mean: the same path on the same host or bucket, if both name one."""
        name = path.rpartition("/")[2]
        if name not in self._names and name.isascii() and "%" not in name and "+" not in name:
            return set()
        named = self._identity(path)
        near = self._by_path.get(named.loose_path, ())
        return {file for file in near if _same_host(_host(self._identity(file)), _host(named))}


def _named_files(table: Table) -> Iterator[str]:
    """Return every file that a table's metadata names, and its own metadata files."""
    metadata = table.metadata
    yield table.metadata_location
    yield join(metadata.location, "metadata", "version-hint.text")
    for entry in metadata.metadata_log:
        yield entry.metadata_file
    for file in statistics_of(metadata):
        yield file.path
    reader = Reachability(Stores(table.io, workers=_READERS_PER_TABLE))
    for snapshot in metadata.snapshots:
        yield snapshot.manifest_list
    manifests = list(reader.manifests_of(metadata.snapshots).values())
    for manifest in manifests:
        yield manifest.path
    for file in reader.content_of(manifests):
        yield file.path


def _resolved(path: str) -> str:
    """Return a local path with all symbolic links resolved; any other path is returned unchanged."""
    if not path.startswith(("file:", "/")):
        return path
    return needed_keys(path)[-1]


def _widen(folders: dict[str, str], path: str) -> None:
    """Extend the common folder of a path's store so that it contains the path."""
    scheme, authority, inner = split_location(path)
    store = f"{scheme}://{authority}"
    folder = "" if "/../" in inner else inner.rpartition("/")[0]
    known = folders.get(store)
    if known is None:
        folders[store] = store + folder
    elif not f"{store}{folder}/".startswith(f"{known}/"):
        folders[store] = store + os.path.commonpath([known[len(store) :] or "/", folder or "/"]).rstrip("/")


def _overlap(folder: str, other: str) -> bool:
    return _inside(folder, other) or _inside(other, folder)


def _inside(root: str, inner: str) -> bool:
    """Whether `inner` is the root or below it; a root without a host matches any host."""
    above, below = _comparable(root), _comparable(inner)
    if above.scheme != below.scheme or not _same_host(above.authority, below.authority):
        return False
    return below.path == above.path or below.path.startswith(above.path + "/")


def _comparable(text: str) -> Location:
    scheme, authority, path = split_location(text)
    if scheme == "file":
        return Location(scheme, "", real_folder(path.rstrip("/")))
    # Two paths that may mean the same folder must compare as equal.
    path = loose_path(path)
    return Location(common_scheme(scheme), authority, path.rstrip("/"))


def _host(identity: Identity) -> str:
    return identity.prefix.partition(ANY_PREFIX)[2]


def _same_host(host: str, other: str) -> bool:
    return not host or not other or host == other
