"""What a path consists of, and which stretch of storage it lies in."""

from __future__ import annotations

import os
import re
from functools import lru_cache
from typing import NamedTuple

from iceberg_compact_sql.storage.paths import same_file_key

_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*)://([^/]*)(.*)", re.DOTALL)
_SHORT_FILE_URI = re.compile(r"file:(/.*)", re.DOTALL | re.IGNORECASE)


class Location(NamedTuple):
    """A path taken apart, nothing decoded: `#`, `?` and `%20` are plain characters of an object's name."""

    scheme: str
    authority: str
    path: str


def split_location(text: str) -> Location:
    """Scheme, authority and path of a location; a plain path is a local file.

    >>> split_location("s3://bucket/a#b/c")
    Location(scheme='s3', authority='bucket', path='/a#b/c')
    >>> split_location("file:/tmp/x") == split_location("file:///tmp/x") == split_location("/tmp/x")
    True
    """
    match = _URI.match(text)
    if match:
        scheme, authority, path = match[1].lower(), match[2], match[3]
        if scheme == "file" and authority == "localhost":
            authority = ""
        return Location(scheme, authority, path)
    short = _SHORT_FILE_URI.match(text)
    return Location("file", "", short[1] if short else text)


def one_file_key(path: str) -> str:
    """`same_file_key`, and one text for a local file by whatever way its folder is reached: links, `//`, `/./`."""
    key = same_file_key(path)
    if not key.startswith("file:/"):
        return key
    folder, slash, name = key.removeprefix("file:").rpartition("/")
    return f"file:{real_folder(folder)}{slash}{name}"


@lru_cache(maxsize=100_000)
def real_folder(folder: str) -> str:
    """A local folder without `//`, `.`, `..` and symbolic links; a run has it cleared, as links may change."""
    return os.path.realpath(f"{folder}/").rstrip("/")


def join(root: str, *names: str) -> str:
    """A location below another one.

    >>> join("s3://b/t/", "metadata", "x")
    's3://b/t/metadata/x'
    """
    return "/".join((root.rstrip("/"), *names))


def relative_to(root: Location, inner: Location) -> str | None:
    """The rest of a path below a root on the same store, '' for the root itself, None outside.

    >>> relative_to(split_location("s3://b/t"), split_location("s3://b/t/data/x"))
    'data/x'
    >>> relative_to(split_location("s3://b/t"), split_location("s3://b/table2/x")) is None
    True
    """
    if _store(root) != _store(inner):
        return None
    base = root.path.rstrip("/")
    if inner.path.rstrip("/") == base:
        return ""
    return inner.path[len(base) + 1 :] if inner.path.startswith(base + "/") else None


def _store(location: Location) -> tuple[str, str]:
    scheme = "s3" if location.scheme in ("s3a", "s3n") else location.scheme
    return scheme, location.authority
