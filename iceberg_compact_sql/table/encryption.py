"""Encrypted tables, which this package neither reads nor writes."""

from __future__ import annotations

from pyiceberg.table.metadata import TableMetadata

from iceberg_compact_sql.errors import UnsupportedError
from iceberg_compact_sql.pyiceberg_internals.kept_fields import unknown_fields

_TABLE_KEY = "encryption.key-id"


def refuse_encrypted(metadata: TableMetadata, table: str | None = None) -> None:
    """Raise UnsupportedError for a table with encryption keys: its metadata and data files are encrypted."""
    keys = unknown_fields(metadata).get("encryption-keys")
    if (
        keys
        or metadata.properties.get(_TABLE_KEY)
        or any(unknown_fields(snapshot).get("key-id") for snapshot in metadata.snapshots)
    ):
        subject = f"table '{table}'" if table else "the table"
        raise UnsupportedError(
            f"{subject} has encryption keys; encrypted tables are not supported",
            argument="table" if table else None,
            value=table,
            hint="Maintain it with the engine that holds its keys.",
        )
