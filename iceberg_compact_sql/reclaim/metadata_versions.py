"""Metadata files that the loaded table does not name: of another table, of a view, or of this table's second name.

A table may be registered in two catalogs, or under two names. Each name then commits its own versions into the same
folder, and a file that one name no longer needs may be live under the other. A failed commit leaves such a metadata
file too. The rules for a metadata file with the uuid of this table:

1. A version that is not newer than the oldest entry of the metadata log is an old version of this table.
2. A version whose current manifest list is gone is left over from a failed commit: it cannot be read.
3. A version that is as new as the current one or newer, by its time or number, is current elsewhere: refused.
4. A version whose previous version is unknown too is current elsewhere: refused.
5. Any other version may be current elsewhere: the files that it names are needed until rule 1 applies to it.
"""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil

from iceberg_compact_sql.catalogs.hadoop import HadoopCatalog
from iceberg_compact_sql.errors import UnsupportedError
from iceberg_compact_sql.reclaim.record_files import metadata_root
from iceberg_compact_sql.storage.locations import join, relative_to, split_location
from iceberg_compact_sql.storage.metadata_json import is_metadata_json, unzipped
from iceberg_compact_sql.storage.same_file import stored_key
from iceberg_compact_sql.storage.stores import Stores

_NUMBER = re.compile(r"v(\d+)\.|(\d+)-")
# The largest difference between the clocks of the store and of the writers.
_CLOCK_SKEW_MS = 3_600_000
# Waits for a commit in progress: its metadata file exists before the catalog names it.
_WAITS_S = (0.3, 1.0, 2.0)


@dataclass(frozen=True, slots=True)
class MetadataFile:
    """The content of a metadata file; `uuid` is None if it is not readable metadata of a table or view."""

    path: str
    uuid: str | None = None
    is_view: bool = False
    # The JSON text is incomplete, as after a crash of its writer.
    is_damaged: bool = False
    last_updated_ms: int = 0
    manifest_list: str | None = None
    # The previous version, and its time.
    base: str | None = None
    base_ms: int = 0


def read_metadata_files(stores: Stores, paths: Iterable[str]) -> list[MetadataFile]:
    """Read metadata files; those that no longer exist are left out."""
    wanted = list(paths)
    files = []
    for path, content in zip(wanted, stores.read_all(wanted), strict=True):
        if isinstance(content, FileNotFoundError):
            continue
        files.append(MetadataFile(path) if isinstance(content, BaseException) else _parsed(path, content))
    return files


def refuse_other_tables(table: Table, files: Iterable[MetadataFile]) -> None:
    """Refuse if any of these metadata files belongs to another table.

    An unreadable file is refused too. A damaged one in the table's own metadata folder is not: a writer that crashed
    leaves it. Views are allowed: they own only their metadata files, which are never orphans.
    """
    own_uuid = str(table.metadata.table_uuid).lower()
    own_folder = split_location(metadata_root(table.metadata))
    for file in files:
        if file.is_view or file.uuid == own_uuid:
            continue
        if file.is_damaged and relative_to(own_folder, split_location(file.path)) is not None:
            continue
        whose = f"belongs to another table ({file.uuid})" if file.uuid else "cannot be read, so its owner is unknown"
        raise UnsupportedError(
            f"{file.path} {whose}: files of another table lie inside this one's location",
            hint="Give a location that holds files of this table only, or move the other table.",
        )


def refuse_folder_of_another_table(table: Table, stores: Stores, location: str) -> None:
    """Refuse a folder outside the table's own location that is inside another table's location.

    Table properties such as `write.data.path` can name any folder.
    """
    if relative_to(split_location(table.metadata.location), split_location(location)) is not None:
        return
    folder = location.rstrip("/").rpartition("/")[0]
    newest: list[str] = []
    while split_location(folder).path.strip("/"):
        # A folder without access is skipped.
        with contextlib.suppress(OSError):
            newest = sorted(path for path, _ in _listed(stores, join(folder, "metadata")))[-1:]
        refuse_other_tables(table, read_metadata_files(stores, newest))
        folder = folder.rpartition("/")[0]


def refuse_copied_folder(table: Table) -> None:
    """Refuse a table of a hadoop catalog whose metadata names another folder as its location.

    The folder was copied or moved: its metadata names the files of the original.
    """
    if not isinstance(table.catalog, HadoopCatalog):
        return
    folder = table.metadata_location.rpartition("/")[0].rpartition("/")[0]
    location = table.metadata.location.rstrip("/")
    if stored_key(join(folder, "x")) != stored_key(join(location, "x")):
        raise UnsupportedError(
            f"the table lies in {folder}, but its metadata names {location} as its location: it is a copy, and the "
            "files that it names belong to the original; nothing was changed",
            argument="table",
            value=".".join(table.name()),
            hint="Run it on the original. If the folder was moved, register the table again from its new location.",
        )


def refuse_second_name(table: Table, stores: Stores, files: Iterable[MetadataFile]) -> list[MetadataFile]:
    """Refuse if one of these files is a version of this table that is current under another name or catalog.

    Returns the versions that may be current elsewhere: the files that they name must be kept.
    """
    metadata = table.metadata
    known = _known(table)
    oldest_ms = _oldest_ms(metadata)
    doubtful = []
    for file in files:
        if file.uuid != str(metadata.table_uuid).lower() or file.is_view or stored_key(file.path) in known:
            continue
        newer = file.last_updated_ms >= metadata.last_updated_ms or _number(file.path) > _number(
            table.metadata_location
        )
        if not newer and file.last_updated_ms <= oldest_ms:
            continue
        if file.manifest_list is not None and stores.stat(file.manifest_list) is None:
            continue
        on_unknown = file.base is not None and stored_key(file.base) not in known and file.base_ms > oldest_ms
        if newer or on_unknown:
            why = "is not older than the version" if newer else "follows another version that is unknown to the one"
            raise UnsupportedError(
                f"{file.path} is a version of this table that {why} that the catalog gives "
                f"({table.metadata_location}): the table may be in use under another name or in another catalog; "
                "nothing was deleted",
                argument="table",
                value=".".join(table.name()),
                hint="Run it on the name that is up to date. If the file is left over from a failed commit, delete it.",
            )
        doubtful.append(file)
    return doubtful


@dataclass(frozen=True, slots=True)
class Versions:
    """A table, and the metadata files in its folders that it does not name; the table is reloaded if there are any.

    The files that a `doubtful` version names must be kept; see rule 5.
    """

    table: Table
    unknown: list[MetadataFile]
    doubtful: list[MetadataFile]


def require_one_name(table: Table, reload: Callable[[], Table], stores: Stores, listed: Iterable[str] = ()) -> Versions:
    """Refuse if the table is in use under another name or catalog, by the rules of this module.

    `listed` are metadata files that a listing contains. The check is repeated after short waits, because a commit in
    progress writes its metadata file before the catalog names it.
    """
    from_listing = list(listed)
    for wait_s in (*_WAITS_S, None):
        # List before loading: the loaded table then names what was current at the listing.
        unknown = read_metadata_files(stores, dict.fromkeys((*from_listing, *unknown_metadata_files(table, stores))))
        if not unknown:
            return Versions(table, [], [])
        table = reload()
        try:
            return Versions(table, unknown, refuse_second_name(table, stores, unknown))
        except UnsupportedError:
            if wait_s is None:
                raise
        time.sleep(wait_s)
    raise AssertionError("the last attempt returns or raises")


def load_version(table: Table, stores: Stores, file: MetadataFile) -> Table:
    """Return the table at the version of a metadata file."""
    metadata = TableMetadataUtil.parse_raw(unzipped(stores.read(file.path)).decode())
    return Table(table.name(), metadata, file.path, table.io, table.catalog)


def unknown_metadata_files(table: Table, stores: Stores) -> list[str]:
    """Return metadata files in the table's folders that it does not name and that may be newer than its log."""
    known = _known(table)
    since_ms = _oldest_ms(table.metadata) - _CLOCK_SKEW_MS
    number = _number(table.metadata_location)
    return [
        path
        for path, modified_ms in _in_metadata_folders(table, stores)
        if stored_key(path) not in known and (modified_ms is None or modified_ms >= since_ms or _number(path) > number)
    ]


def _in_metadata_folders(table: Table, stores: Stores) -> Iterator[tuple[str, int | None]]:
    """Return the metadata files in every current and former metadata folder of the table, with their times."""
    metadata = table.metadata
    logged = [entry.metadata_file.rpartition("/")[0] for entry in metadata.metadata_log]
    now = [metadata_root(metadata), join(metadata.location, "metadata"), table.metadata_location.rpartition("/")[0]]
    folders = {stored_key(join(folder, "x")): folder for folder in logged}
    current = {stored_key(join(folder, "x")): folder for folder in now}
    for key, folder in {**folders, **current}.items():
        try:
            yield from _listed(stores, folder)
        except OSError:
            # A former folder of the table, or its bucket, may no longer exist.
            if key in current:
                raise


def _oldest_ms(metadata: TableMetadata) -> int:
    """Return the time from which the metadata log is complete: its first entry, else the current version."""
    return metadata.metadata_log[0].timestamp_ms if metadata.metadata_log else metadata.last_updated_ms


def _known(table: Table) -> set[str]:
    files = (table.metadata_location, *(entry.metadata_file for entry in table.metadata.metadata_log))
    return {stored_key(path) for path in files}


def _listed(stores: Stores, folder: str) -> Iterator[tuple[str, int | None]]:
    try:
        files, _ = stores.of(folder).level(folder)
    except (FileNotFoundError, NotADirectoryError):
        return
    for file in files:
        if is_metadata_json(file.path):
            yield file.path, file.modified_ms


def _number(path: str) -> int:
    """Return the version number in `v7.metadata.json` or `00007-<uuid>.metadata.json`; 0 if there is none."""
    match = _NUMBER.match(path.rpartition("/")[2])
    return int(match[1] or match[2]) if match else 0


def _parsed(path: str, content: bytes) -> MetadataFile:
    try:
        document = json.loads(unzipped(content))
    except (OSError, EOFError, ValueError):
        return MetadataFile(path, is_damaged=True)
    if not isinstance(document, dict):
        return MetadataFile(path, is_damaged=True)
    if document.get("view-uuid") and not document.get("table-uuid"):
        return MetadataFile(path, str(document["view-uuid"]).lower(), is_view=True)
    uuid = document.get("table-uuid")
    current = document.get("current-snapshot-id")
    lists = [s.get("manifest-list") for s in document.get("snapshots") or () if s.get("snapshot-id") == current]
    base = (document.get("metadata-log") or [{}])[-1]
    return MetadataFile(
        path,
        str(uuid).lower() if uuid else None,
        last_updated_ms=document.get("last-updated-ms") or 0,
        manifest_list=lists[0] if lists else None,
        base=base.get("metadata-file"),
        base_ms=base.get("timestamp-ms") or 0,
    )
