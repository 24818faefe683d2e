"""Which data files a position delete file names, as far as the bounds of its paths tell."""

from __future__ import annotations

from iceberg_compact_sql.storage.paths import same_file_key

# The reserved id of the column `file_path` in position delete files.
PATH_FIELD_ID = 2147483546

PathRange = tuple[str, str]


def path_range(lower: bytes | None, upper: bytes | None) -> PathRange | None:
    """The first and last comparing key of the paths in a position delete file; None when nothing can be said.

    >>> path_range(b"file:///lake/a", b"file:///lake/z")
    ('file:/lake/a', 'file:/lake/z')
    >>> path_range(b"file:///lake/z", b"file:/lake/a") is None
    True
    """
    if lower is None or upper is None:
        return None
    try:
        low, high = lower.decode(), upper.decode()
    except UnicodeDecodeError:
        return None
    # Two spellings in one file, as where Java and pyiceberg both wrote to a table: the order of the raw texts says
    # nothing about the order of the keys.
    if low != high and _spelling(low) != _spelling(high):
        return None
    return same_file_key(low), same_file_key(high)


def in_range(key: str, bounds: PathRange | None) -> bool:
    """Whether a delete with these bounds may name the data file with this comparing key."""
    return bounds is None or bounds[0] <= key <= bounds[1]


def _spelling(path: str) -> str:
    """How a path begins, up to where its comparing key agrees with it."""
    key = same_file_key(path)
    tail = key[key.find(":") + 1 :].lstrip("/")
    return path[: len(path) - len(tail)] if tail and path.endswith(tail) else path
