"""Iceberg's hadoop catalog: tables are folders, and the newest `metadata/v<N>.metadata.json` is the table's state."""

from __future__ import annotations

import contextlib
import gzip
import re
from typing import Any, NoReturn

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder
from pyiceberg.table.update import TableRequirement, TableUpdate, update_table_metadata
from pyiceberg.typedef import EMPTY_DICT, Identifier, Properties

from iceberg_compact_sql.errors import InvalidArgumentError, UnsupportedError
from iceberg_compact_sql.events import reach
from iceberg_compact_sql.storage.file_io import ExactFileIO, with_exact_paths
from iceberg_compact_sql.storage.locations import split_location
from iceberg_compact_sql.storage.metadata_json import unzipped
from iceberg_compact_sql.storage.stores import stores_of
from iceberg_compact_sql.table.properties import METADATA_COMPRESSION, METADATA_PATH

_VERSION = re.compile(r"v(\d+)(?:\.gz)?\.metadata\.json(?:\.gz)?")
# Java looks for all three names of a version. So must we before we create the next one.
_VERSION_NAMES = ("v{}.metadata.json", "v{}.gz.metadata.json", "v{}.metadata.json.gz")
_HINT = "version-hint.text"


class HadoopCatalog(NoopCatalog):
    """Loads and commits tables below a warehouse folder, beside Java's HadoopCatalog.

    A commit creates the next version only if it does not exist: atomic between all Python writers. On local disks and
    S3, Java's commit checks first and renames then. So two Java writers, or Java's rename just after our commit, can
    still lose a commit; that is a limit of Hadoop catalogs, not of this class.
    """

    def __init__(self, name: str, **properties: str) -> None:
        super().__init__(name, **properties)
        warehouse = properties.get("warehouse", "").rstrip("/")
        split = split_location(warehouse)
        self._warehouse = f"file://{split.local_path}" if split.is_local else warehouse
        self._stores = stores_of(ExactFileIO(properties))

    def supports_server_side_planning(self) -> bool:
        return False

    def require_commits(self) -> None:
        """Raise, before any work, if this catalog's store has no safe way to commit."""
        self._stores.require_create(self._warehouse)

    def load_table(self, identifier: str | Identifier) -> Table:
        """Load the newest version. The version hint may lag behind, so later versions are looked for."""
        parts = self._parts(identifier)
        folder = f"{self._folder(parts)}/metadata"
        version = self._newest_version(folder)
        location = self._version_location(folder, version) if version else None
        if location is None:
            raise NoSuchTableError(f"Table does not exist: {'.'.join(parts)}")
        metadata = _parse(self._stores.read(location))
        io = with_exact_paths(self._load_file_io(metadata.properties, location))
        return Table(parts, metadata, location, io, self)

    def table_exists(self, identifier: str | Identifier) -> bool:
        return self._is_table(self._folder(self._parts(identifier)))

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        """Create the next version from the newest one; raise CommitFailedException if another writer was faster."""
        current = self.load_table(table.name())
        for requirement in requirements:
            requirement.validate(current.metadata)
        metadata = update_table_metadata(current.metadata, updates, metadata_location=current.metadata_location)
        if metadata == current.metadata:
            return _response(metadata, current.metadata_location)
        if metadata.location != current.metadata.location or METADATA_PATH.name in metadata.properties:
            raise UnsupportedError("tables of a hadoop catalog cannot be moved, nor can their metadata")
        folder = f"{self._folder(self._parts(table.name()))}/metadata"
        version = _version_of(current.metadata_location) + 1
        reach("hadoop.commit", table=".".join(table.name()), version=version)
        location = self._create_version(folder, version, metadata)
        if location is None:
            raise CommitFailedException(f"Version {version} of {'.'.join(table.name())} already exists")
        return _response(metadata, location)

    def create_table(
        self,
        identifier: str | Identifier,
        schema: Any,
        location: str | None = None,
        partition_spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
        sort_order: SortOrder = UNSORTED_SORT_ORDER,
        properties: Properties = EMPTY_DICT,
    ) -> Table:
        """Create a table in its own folder; a Hadoop catalog cannot keep it elsewhere."""
        parts = self._parts(identifier)
        folder = self._folder(parts)
        if location is not None and location.rstrip("/") != folder:
            raise UnsupportedError(f"a hadoop catalog keeps this table in {folder}, not in {location}")
        if not isinstance(schema, Schema):
            raise InvalidArgumentError("create_table of a hadoop catalog takes an Iceberg schema", argument="schema")
        if not self.namespace_exists(parts[:-1]):
            raise NoSuchNamespaceError(f"Namespace does not exist: {'.'.join(parts[:-1])}")
        metadata = new_table_metadata(schema, partition_spec, sort_order, folder, dict(properties))
        if self._is_table(folder):
            raise TableAlreadyExistsError(f"Table already exists: {'.'.join(parts)}")
        if split_location(folder).is_local:
            self._make_folder(f"{folder}/metadata")
        if self._create_version(f"{folder}/metadata", 1, metadata) is None:
            raise TableAlreadyExistsError(f"Table already exists: {'.'.join(parts)}")
        return self.load_table(parts)

    def create_namespace(self, namespace: str | Identifier, properties: Properties = EMPTY_DICT) -> None:
        if properties:
            raise UnsupportedError("namespaces of a hadoop catalog are folders and have no properties")
        self._make_folder(self._folder(self._parts(namespace)))

    def namespace_exists(self, namespace: str | Identifier) -> bool:
        folder = self._folder(self._parts(namespace))
        return self._stores.of(folder).has_folder(folder) and not self._is_table(folder)

    def list_tables(self, namespace: str | Identifier) -> list[Identifier]:
        parts = self._parts(namespace)
        if not self.namespace_exists(parts):
            raise NoSuchNamespaceError(f"Namespace does not exist: {'.'.join(parts)}")
        return [(*parts, name) for name, is_table in self._folders(parts) if is_table]

    def list_namespaces(self, namespace: str | Identifier = ()) -> list[Identifier]:
        parts = self._parts(namespace)
        return [(*parts, name) for name, is_table in self._folders(parts) if not is_table]

    def list_views(self, namespace: str | Identifier) -> list[Identifier]:
        return []

    def view_exists(self, identifier: str | Identifier) -> bool:
        return False

    def drop_table(self, identifier: str | Identifier) -> NoReturn:
        self._refuse("drop tables")

    def purge_table(self, identifier: str | Identifier) -> NoReturn:
        self._refuse("purge tables")

    def rename_table(self, from_identifier: str | Identifier, to_identifier: str | Identifier) -> NoReturn:
        self._refuse("rename tables")

    def register_table(self, identifier: str | Identifier, metadata_location: str, overwrite: bool = False) -> NoReturn:
        self._refuse("register tables")

    def drop_namespace(self, namespace: str | Identifier) -> NoReturn:
        self._refuse("drop namespaces")

    def _refuse(self, what: str) -> NoReturn:
        message = f"the hadoop catalog {self.name!r} is opened for maintenance, which does not {what}"
        raise UnsupportedError(message, hint="Do it with the engine that owns the catalog.")

    def _parts(self, identifier: str | Identifier) -> Identifier:
        parts = Catalog.identifier_to_tuple(identifier) if isinstance(identifier, str) else tuple(identifier)
        for part in parts:
            # A part is one folder name: anything else would leave the warehouse.
            if part in ("", ".", "..") or "/" in part or "\0" in part:
                raise InvalidArgumentError(f"{part!r} cannot be part of a name in a hadoop catalog", argument="table")
        return parts

    def _folder(self, parts: Identifier) -> str:
        return "/".join((self._warehouse, *parts))

    def _folders(self, parts: Identifier) -> list[tuple[str, bool]]:
        """Return the folders below a namespace, each with whether it is a table."""
        folder = self._folder(parts)
        _, names = self._entries(folder)
        return [(name, self._is_table(f"{folder}/{name}")) for name in names]

    def _is_table(self, folder: str) -> bool:
        files, _ = self._entries(f"{folder}/metadata")
        return any(_VERSION.fullmatch(name) for name in files)

    def _entries(self, folder: str) -> tuple[list[str], list[str]]:
        """Return the names of the files and of the folders in a folder; none if it does not exist."""
        try:
            files, folders = self._stores.of(folder).level(folder, follow_links=True)
        except (FileNotFoundError, NotADirectoryError):
            return [], []
        return sorted(file.path.rpartition("/")[2] for file in files), sorted(folders)

    def _make_folder(self, folder: str) -> None:
        self._stores.of(folder).make_folder(folder)

    def _newest_version(self, folder: str) -> int:
        try:
            version = int(self._stores.read(f"{folder}/{_HINT}").split()[0])
        except (OSError, ValueError, IndexError):
            version = 0
        if not version or self._version_location(folder, version) is None:
            # No hint, or its version was deleted: take the newest file in the folder, as Java does.
            matches = (_VERSION.fullmatch(name) for name in self._entries(folder)[0])
            version = max((int(match[1]) for match in matches if match), default=0)
        while version and self._version_location(folder, version + 1) is not None:
            version += 1
        return version

    def _version_location(self, folder: str, version: int) -> str | None:
        candidates = (f"{folder}/{pattern.format(version)}" for pattern in _VERSION_NAMES)
        return next((location for location in candidates if self._stores.stat(location) is not None), None)

    def _create_version(self, folder: str, version: int, metadata: TableMetadata) -> str | None:
        """Create a version and return its location, or None if it exists already."""
        if self._version_location(folder, version) is not None:
            return None
        compressed = METADATA_COMPRESSION.of(metadata.properties) == "gzip"
        text = metadata.model_dump_json(exclude_none=True).encode()
        location = f"{folder}/{_VERSION_NAMES[1 if compressed else 0].format(version)}"
        if not self._stores.create(location, gzip.compress(text) if compressed else text):
            return None
        # The commit has landed. The hint only saves readers a listing.
        with contextlib.suppress(OSError):
            self._stores.write(f"{folder}/{_HINT}", str(version).encode())
        return location


def _response(metadata: TableMetadata, location: str) -> CommitTableResponse:
    return CommitTableResponse.model_validate({"metadata": metadata, "metadata-location": location})


def _version_of(location: str) -> int:
    match = _VERSION.fullmatch(location.rpartition("/")[2])
    assert match is not None
    return int(match[1])


def _parse(data: bytes) -> TableMetadata:
    return TableMetadataUtil.parse_raw(unzipped(data).decode())
