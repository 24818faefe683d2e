"""Where a table may own files, and whether a place lies inside."""

from __future__ import annotations

from pathlib import Path

from pyiceberg.table.metadata import TableMetadata

from iceberg_compact_sql.errors import InvalidArgumentError, UnsupportedError
from iceberg_compact_sql.storage.local import through_symlink
from iceberg_compact_sql.storage.locations import Location, join, relative_to, split_location
from iceberg_compact_sql.storage.write_paths import WRITE_PATHS


def owned_roots(metadata: TableMetadata) -> tuple[str, ...]:
    """The table's location, and the places where its properties say that it writes."""
    told = (metadata.properties.get(name) for name in WRITE_PATHS)
    return tuple(dict.fromkeys(root for root in (metadata.location, *told) if root))


def checked_location(metadata: TableMetadata, location: str | None) -> str:
    """The place to look for orphans: the table's own location, or one inside what the table owns.

    Refuses a bucket or file system as a whole, `.` and `..`, a way through a symbolic link, a file, and any place
    outside.
    """
    place = location or metadata.location
    parts = split_location(place)
    if not parts.path.strip("/"):
        raise UnsupportedError(
            f"{place} is a whole bucket or file system; other things live there too",
            argument="location",
            value=place,
            hint="Give a folder of the table as location.",
        )
    for turn in (".", ".."):
        if turn in parts.path.split("/"):
            raise _refused(place, f"has '{turn}' in it")
    root = next((r for r in owned_roots(metadata) if relative_to(split_location(r), parts) is not None), None)
    if root is None:
        raise _refused(place, f"is outside what the table owns ({', '.join(owned_roots(metadata))})")
    if parts.scheme == "file" and through_symlink(root, join(place, "x")):
        raise _refused(place, "leads through a symbolic link")
    if parts.scheme == "file" and Path(parts.path).is_file():
        raise _refused(place, "is a file, not a folder")
    return place.rstrip("/")


def inside(root: Location, path: str) -> bool:
    """Whether a file lies below a root, with no `..` on the way."""
    relative = relative_to(root, split_location(path))
    return bool(relative) and relative is not None and ".." not in relative.split("/")


def _refused(place: str, why: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"location {place} {why}",
        argument="location",
        value=place,
        hint="Files are deleted only inside the table's location, write.data.path and write.metadata.path.",
    )
