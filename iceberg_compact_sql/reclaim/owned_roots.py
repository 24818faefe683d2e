"""The folders that a table owns, and the check that a location is inside them."""

from __future__ import annotations

from pathlib import Path

from pyiceberg.table.metadata import TableMetadata

from iceberg_compact_sql.errors import InvalidArgumentError, UnsupportedError
from iceberg_compact_sql.storage.local import through_symlink
from iceberg_compact_sql.storage.locations import join, relative_to, split_location
from iceberg_compact_sql.table.properties import WRITE_PATHS


def owned_roots(metadata: TableMetadata) -> tuple[str, ...]:
    """Return the table's location, and the folders that its write properties name."""
    write_paths = (path.of(metadata.properties) for path in WRITE_PATHS)
    return tuple(dict.fromkeys(root for root in (metadata.location, *write_paths) if root))


def checked_location(metadata: TableMetadata, location: str | None) -> str:
    """Return the folder to search for orphans: the table's location, or a given one inside the folders it owns.

    Refuses a whole bucket or file system, `.` and `..`, a path through a symbolic link, a file, and any folder that
    the table does not own.
    """
    folder = location or metadata.location
    parts = split_location(folder)
    if not parts.path.strip("/"):
        raise UnsupportedError(
            f"{folder} is a whole bucket or file system, which may hold other data",
            argument="location",
            value=folder,
            hint="Give a folder of the table as location.",
        )
    for level in (".", ".."):
        if level in parts.path.split("/"):
            raise _refused(folder, f"has '{level}' in it")
    root = next((r for r in owned_roots(metadata) if relative_to(split_location(r), parts) is not None), None)
    if root is None:
        raise _refused(folder, f"is outside what the table owns ({', '.join(owned_roots(metadata))})")
    if parts.scheme == "file" and through_symlink(root, join(folder, "x")):
        raise _refused(folder, "leads through a symbolic link")
    if parts.scheme == "file" and Path(parts.path).is_file():
        raise _refused(folder, "is a file, not a folder")
    return folder.rstrip("/")


def _refused(folder: str, why: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"location {folder} {why}",
        argument="location",
        value=folder,
        hint="Files are deleted only inside the table's location, write.data.path and write.metadata.path.",
    )
