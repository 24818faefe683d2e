"""Decides whether two paths are the same file. There are four rules, for different purposes.

Exact text (`==`, no function): what the specification, Java and every other reader use to find the data file of a
    position delete, of `referenced_data_file` and of a deletion vector. `file:/x` and `file:///x` are two files here.
    Used to apply deletes, to score and plan them, and to find the inputs of a commit in the manifests.
`same_file_key`: certainly the same object, by the text alone. Scheme and authority may be spelled in several ways
    (`/x`, `file:/x`, `file:///x`; `s3`, `s3a`, `s3n`), the rest is the exact key. Used for paths in summaries, and to
    compare with paths of other writers.
`stored_key`: certainly the same object, after reading the disk. An object store addresses an object by its exact key; a
    disk addresses a file by its resolved folder, so that `//`, `.`, `..` and links to folders make no difference.
    The file itself is not resolved: a link and its target are two objects, and deleting a link keeps its target.
    `needed_keys` returns all objects that are needed to read a path: the file, or a link, the links that it leads to
    and the last target. Used to decide what may be deleted.
`loose_key`: possibly the same file. Scheme and authority are ignored, `%20` and `+` are decoded, `//`, `.` and `..`
    are resolved, and unicode is composed. If two keys are equal the file is kept, and the call reports why. Used before
    deleting, for conflict checks, and for deletes that would be removed as obsolete.

A file that is needed by any of the rules is kept. Keys are never shown or written.
"""

from __future__ import annotations

import os
import re
import unicodedata
from functools import lru_cache
from urllib.parse import unquote_plus

from iceberg_compact_sql.storage.locations import split_location

# Schemes of the same object store.
_SAME_SCHEME = {"s3a": "s3", "s3n": "s3", "abfss": "abfs", "wasbs": "wasb"}
_AMBIGUOUS = re.compile(r"[%+ ]|//|/\.\.?(?:/|$)|/$|[^\x00-\x7f]")
# The limit of Linux, which then fails with ELOOP.
_MOST_LINKS = 40


def same_file_key(path: str) -> str:
    """Return one key for all spellings of scheme and authority that certainly mean one object; the rest is unchanged.

    >>> same_file_key("file:/tmp/x") == same_file_key("file:///tmp/x") == same_file_key("/tmp/x")
    True
    >>> same_file_key("s3a://bucket/a%20b") == same_file_key("s3://bucket/a%20b")
    True
    >>> same_file_key("hdfs:/lake/x") == same_file_key("hdfs://namenode/lake/x")
    False
    """
    if path.startswith("s3://"):
        return path
    scheme, authority, rest = split_location(path)
    if scheme == "file" and not authority:
        return f"file:{rest}"
    return f"{common_scheme(scheme)}://{authority}{rest}"


def common_scheme(scheme: str) -> str:
    """Return one name for all schemes of the same object store.

    >>> common_scheme("s3a")
    's3'
    """
    return _SAME_SCHEME.get(scheme, scheme)


def stored_key(path: str) -> str:
    """Return one key for one object, whichever path leads to its folder; a link as the last name is not followed."""
    location = split_location(path)
    # The disks of another host cannot be read.
    if not location.is_local or location.authority:
        return same_file_key(path)
    return f"file:{resolved_path(location.local_path)}"


def resolved_path(path: str) -> str:
    """Return an absolute local path without `//`, `.`, `..` and links in its folders; the last name is kept."""
    folder, _, name = path.rpartition("/")
    if name in ("", ".", ".."):
        return real_folder(path) or "/"
    return f"{real_folder(folder)}/{name}"


def needed_keys(path: str) -> tuple[str, ...]:
    """Return the `stored_key` of every object that is needed to read a path; the first one is that of the path itself.

    A data file that is a symbolic link needs its target too, and every link on the way to it.
    """
    keys = [stored_key(path)]
    if keys[0].startswith("file:/"):
        keys += (f"file:{target}" for target in link_targets(keys[0].removeprefix("file:")))
    return tuple(keys)


def link_targets(path: str) -> list[str]:
    """Return the chain of paths that a link leads to, each resolved by `resolved_path`; empty for a plain file."""
    targets: list[str] = []
    while len(targets) < _MOST_LINKS and _is_link(path):
        try:
            target = os.readlink(path)  # noqa: PTH115 - a Path would fold `//` and `.`
        except OSError:
            break
        path = resolved_path(os.path.join(path.rpartition("/")[0] or "/", target))  # noqa: PTH118
        if path in targets:
            break
        targets.append(path)
    return targets


def loose_key(path: str) -> str:
    """Return one key for all paths that may be the same file.

    >>> loose_key("hdfs://namenode/lake/a%20b") == loose_key("hdfs:/lake//x/../a+b")
    True
    """
    return loose_path(split_location(path).path)


def loose_path(path: str) -> str:
    """Return the decoded and normalized path of a location; most paths are unchanged."""
    if not is_ambiguous(path):
        return path
    for _ in range(_MOST_LINKS):
        decoded = unquote_plus(path)
        if decoded == path:
            break
        path = decoded
    levels: list[str] = []
    for level in unicodedata.normalize("NFC", path).split("/"):
        if level == "..":
            del levels[-1:]
        elif level not in ("", "."):
            levels.append(level)
    return "/" + "/".join(levels)


def is_ambiguous(path: str) -> bool:
    """Whether decoding, resolving or unicode composition could change a path."""
    return _AMBIGUOUS.search(path) is not None


def forget_links() -> None:
    """Clear the caches of folders and links: they may have changed since the last run."""
    real_folder.cache_clear()
    _links_in.cache_clear()


@lru_cache(maxsize=100_000)
def real_folder(folder: str) -> str:
    """Return a local folder without `//`, `.`, `..` and symbolic links; '' for the root."""
    return os.path.realpath(f"{folder}/").rstrip("/")


def _is_link(path: str) -> bool:
    folder, _, name = path.rpartition("/")
    links = _links_in(folder)
    return os.path.islink(path) if links is None else name in links  # noqa: PTH114


@lru_cache(maxsize=100_000)
def _links_in(folder: str) -> frozenset[str] | None:
    """Return the symbolic links in a folder; None if it cannot be listed. One listing is cheaper than many checks."""
    try:
        with os.scandir(folder or "/") as scan:
            return frozenset(entry.name for entry in scan if entry.is_symlink())
    except OSError:
        return None
