"""Which data files a position delete file may name, by the bounds of its column `file_path`."""

from __future__ import annotations

from iceberg_compact_sql.storage.locations import split_location

# The reserved id of the column `file_path` in position delete files.
PATH_FIELD_ID = 2147483546

PathRange = tuple[str, str]


def path_range(lower: bytes | None, upper: bytes | None) -> PathRange | None:
    """Return the first and last path in a position delete file, as exact texts; None when they are unknown.

    >>> path_range(b"file:///lake/a", b"file:///lake/z")
    ('file:///lake/a', 'file:///lake/z')
    """
    if lower is None or upper is None:
        return None
    try:
        return lower.decode(), upper.decode()
    except UnicodeDecodeError:
        return None


def in_range(path: str, bounds: PathRange | None) -> bool:
    """Whether a delete with these bounds can apply to the data file with exactly this path.

    >>> in_range("file:/lake/b", path_range(b"file:///lake/a", b"file:///lake/z"))
    False
    """
    return bounds is None or bounds[0] <= path <= bounds[1]


def may_be_in_range(path: str, bounds: PathRange | None) -> bool:
    """Whether a delete with these bounds may name the file at this path in any spelling of scheme and authority.

    >>> may_be_in_range("file:/lake/b", path_range(b"file:///lake/a", b"file:///lake/z"))
    True
    """
    if bounds is None or in_range(path, bounds):
        return True
    low, high = (split_location(bound).path for bound in bounds)
    # One file has two spellings, for example when Java and pyiceberg both wrote to the table: the order of the texts
    # is then not the order of the paths.
    if bounds[0].removesuffix(low) != bounds[1].removesuffix(high):
        return True
    return low <= split_location(path).path <= high
