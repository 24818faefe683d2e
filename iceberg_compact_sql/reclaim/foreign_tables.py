"""Metadata files of other tables inside a place that is about to be cleaned."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterable

from pyiceberg.table import Table

from iceberg_compact_sql.errors import UnsupportedError
from iceberg_compact_sql.reclaim.locations import relative_to, split_location
from iceberg_compact_sql.reclaim.quarantine import metadata_root
from iceberg_compact_sql.reclaim.stores import Stores

_UUID = re.compile(rb'"table-uuid"\s*:\s*"([0-9a-fA-F-]{36})"')


def is_table_metadata(path: str) -> bool:
    """Whether a file's name is that of a table's metadata."""
    return path.endswith((".metadata.json", ".metadata.json.gz"))


def refuse_foreign_tables(table: Table, stores: Stores, metadata_files: Iterable[str]) -> None:
    """Refuse when any of these metadata files belongs to another table.

    One that cannot be read is refused too, unless it lies in this table's own metadata folder, where a writer that
    died leaves such a file behind.
    """
    own_uuid = str(table.metadata.table_uuid).lower()
    own_folder = split_location(metadata_root(table.metadata))
    paths = list(metadata_files)
    for path, content in zip(paths, stores.read_all(paths), strict=True):
        if isinstance(content, FileNotFoundError):
            continue
        uuid = None if isinstance(content, BaseException) else _table_uuid(content)
        if uuid == own_uuid:
            continue
        if uuid is None and relative_to(own_folder, split_location(path)) is not None:
            continue
        whose = f"belongs to another table ({uuid})" if uuid else "cannot be read, so nobody can tell whose it is"
        raise UnsupportedError(
            f"{path} {whose}: files of another table lie inside this one's location",
            hint="Give a location that holds files of this table only, or move the other table.",
        )


def _table_uuid(content: bytes) -> str | None:
    try:
        text = gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content
        found = _UUID.findall(text)
        # A property or comment may hold the same words: only the parsed document decides between several.
        uuid = found[0].decode() if len(found) == 1 else json.loads(text).get("table-uuid")
    except (OSError, EOFError, ValueError, AttributeError):
        return None
    return str(uuid).lower() if uuid else None
