"""The folder of a table's deletion records, and how a record is written and read.

The rule: a record belongs to one table uuid, never to a folder alone. Several tables may share one metadata folder.
Records are in `<metadata folder>/_quarantine/<table uuid>/`, and each one repeats the uuid inside. The underscore hides
the folder from Iceberg's own orphan removal. A record also holds a checksum of its files: a flipped bit must not change
what gets deleted.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from pyiceberg.table.metadata import TableMetadata

from iceberg_compact_sql.errors import IcebergCompactError
from iceberg_compact_sql.redaction import masked_logger
from iceberg_compact_sql.storage.locations import join
from iceberg_compact_sql.storage.metadata_json import unzipped
from iceberg_compact_sql.storage.stores import Stores
from iceberg_compact_sql.table.properties import METADATA_PATH

FOLDER = "_quarantine"
_log = masked_logger(__name__)


def metadata_root(metadata: TableMetadata) -> str:
    """Return the folder that the table's metadata files are written to."""
    return _metadata_folder(metadata.location, metadata.properties)


def quarantine_root(metadata: TableMetadata) -> str:
    """Return the folder of records and quarantined files; no file in it counts as an orphan."""
    return join(metadata_root(metadata), FOLDER)


def own_folder(metadata: TableMetadata) -> str:
    """Return the subfolder of the quarantine folder that belongs to this table alone."""
    return join(quarantine_root(metadata), str(metadata.table_uuid))


def known_roots(metadata: TableMetadata) -> list[str]:
    """Return the quarantine folders that the current metadata leads to, the current one first.

    After SET LOCATION or a new `write.metadata.path` the earlier folders still show in the metadata log and in the
    manifest lists of older snapshots.
    """
    named = [entry.metadata_file for entry in reversed(metadata.metadata_log)]
    named += [snapshot.manifest_list for snapshot in reversed(metadata.snapshots)]
    folders = [metadata_root(metadata), join(metadata.location, "metadata"), *map(_parent, named)]
    return [join(folder, FOLDER) for folder in dict.fromkeys(folder.rstrip("/") for folder in folders)]


def all_roots(stores: Stores, metadata: TableMetadata) -> list[str]:
    """Return `known_roots`, and the quarantine folders of every earlier location and `write.metadata.path`.

    Reads the files of the metadata log. A log usually holds a hundred entries, so the log in its oldest file is read
    next, until a file is missing.
    """
    folders = dict.fromkeys(known_roots(metadata))
    seen: set[str] = set()
    log = [entry.metadata_file for entry in metadata.metadata_log]
    while log:
        oldest_log: list[str] = []
        for path, content in zip(log, stores.read_all(log), strict=True):
            seen.add(path)
            document = None if isinstance(content, BaseException) else _parsed_metadata(content)
            if document is not None:
                folders[join(_metadata_folder(document["location"], document.get("properties") or {}), FOLDER)] = None
                earlier = [entry["metadata-file"] for entry in document.get("metadata-log") or ()]
                folders.update((join(_parent(file), FOLDER), None) for file in earlier)
                oldest_log = oldest_log or [file for file in earlier[:1] if file not in seen]
        log = oldest_log
    return list(folders)


def new_run_id() -> str:
    """Return a new unique name for the records of one run."""
    return uuid.uuid4().hex


def write_record(
    stores: Stores, path: str, metadata: TableMetadata, files: Sequence[Sequence[object]], **facts: object
) -> None:
    """Write a record of this table: its files, a checksum over them, and further facts."""
    record = {"table-uuid": str(metadata.table_uuid), "sha256": _checksum(files), "files": files, **facts}
    stores.write(path, json.dumps(record).encode())


def read_record(stores: Stores, path: str) -> Any:
    """Return the parsed record; raises IcebergCompactError if it is damaged and FileNotFoundError if it is missing.

    Records of earlier versions have neither a uuid nor a checksum; their journals are bare lists.
    """
    content = stores.read(path)
    try:
        record = json.loads(content)
        if isinstance(record, dict) and "sha256" in record and record["sha256"] != _checksum(record["files"]):
            raise ValueError("its files do not have its checksum")
    except (ValueError, KeyError) as error:
        raise IcebergCompactError(
            f"{path}, which lists files that were moved aside or are being deleted, is damaged ({error})",
            hint="Restore it, or move it away: then remove_orphans finds what it listed.",
        ) from error
    return record


def belongs_to(record: Any, metadata: TableMetadata, path: str) -> bool:
    """Whether a record in this table's folder has the table's uuid; logs a warning otherwise."""
    owner = record.get("table-uuid") if isinstance(record, dict) else None
    if owner == str(metadata.table_uuid):
        return True
    _log.warning("%s belongs to table uuid %s, not to %s: it is not used", path, owner, metadata.table_uuid)
    return False


def _checksum(files: object) -> str:
    return hashlib.sha256(json.dumps(files).encode()).hexdigest()


def _metadata_folder(location: str, properties: Mapping[str, str]) -> str:
    return METADATA_PATH.of(properties) or join(location, "metadata")


def _parent(path: str) -> str:
    return path.rpartition("/")[0]


def _parsed_metadata(content: bytes) -> dict[str, Any] | None:
    try:
        document = json.loads(unzipped(content))
        return document if isinstance(document, dict) and isinstance(document.get("location"), str) else None
    except (OSError, EOFError, ValueError):
        return None
