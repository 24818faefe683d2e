"""Parses locations: scheme, authority and path of a file, and its path relative to a folder. The only parser of paths.

Nothing is decoded or normalized here: `#`, `?`, `%20`, `//` and `..` are plain characters of an object's name.
`same_file` decides whether two paths are the same file.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from iceberg_compact_sql.errors import UnsupportedError

S3_SCHEMES = frozenset({"s3", "s3a", "s3n"})
# In Hadoop's file systems the authority is a server and not part of the path. Elsewhere it is a bucket or container.
HDFS_SCHEMES = frozenset({"hdfs", "viewfs"})
# A scheme has at least two letters: `C:` is a drive. Hadoop writes `scheme:/path` when there is no authority.
_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]+):(?://([^/]*))?(/.*)?", re.DOTALL)
_REPEATED_SLASHES = re.compile(r"/(?:\.?/)+")


class Location(NamedTuple):
    """A parsed location: a lower-case scheme, an authority that may be empty, and the path with its first slash."""

    scheme: str
    authority: str
    path: str

    @property
    def is_local(self) -> bool:
        """Whether this is a file on a local disk."""
        return self.scheme == "file"

    @property
    def is_s3(self) -> bool:
        """Whether this is an S3 object, with any of the three schemes."""
        return self.scheme in S3_SCHEMES

    @property
    def names_no_bucket(self) -> bool:
        """Whether this is a path of an object store without a bucket, such as `s3:/key`."""
        return not (self.authority or self.is_local or self.scheme in HDFS_SCHEMES)

    @property
    def key(self) -> str:
        """The exact key of an object in its bucket: everything after the first slash."""
        return self.path[1:]

    @property
    def object_path(self) -> str:
        """The name of the file in the API of pyarrow and fsspec: `bucket/key` on stores, the path on file systems."""
        if self.is_local:
            return self.local_path
        return self.path if self.scheme in HDFS_SCHEMES else f"{self.authority}{self.path}"

    @property
    def local_path(self) -> str:
        """The absolute path for the operating system; raises for a file of another host."""
        if self.authority:
            raise UnsupportedError(
                f"file://{self.authority}{self.path} names the host '{self.authority}', which is not this machine",
                hint="A local file is written file:///path, with three slashes.",
            )
        return self.path if self.path.startswith("/") else str(Path(self.path).absolute())


def split_location(text: str) -> Location:
    """Return scheme, authority and path of a location; text without a scheme is a local path.

    >>> split_location("s3://bucket/a#b/c")
    Location(scheme='s3', authority='bucket', path='/a#b/c')
    >>> split_location("file:/tmp/x") == split_location("FILE://localhost/tmp/x") == split_location("/tmp/x")
    True
    >>> split_location("hdfs:/lake/x") == split_location("hdfs:///lake/x") == Location("hdfs", "", "/lake/x")
    True
    """
    match = None if text.startswith("/") else _URI.fullmatch(text)
    # `name:` and `a:b` without a slash are names of local files.
    if match is None or (match[2] is None and match[3] is None):
        return Location("file", "", text)
    scheme, authority, path = match[1].lower(), match[2] or "", match[3] or ""
    if scheme == "file" and authority.lower() == "localhost":
        authority = ""
    return Location(scheme, authority, path)


def hadoop_spelling(text: str) -> str:
    """A path as Hadoop names it in a listing: a local file is `file:/path`, any other file keeps its text.

    >>> hadoop_spelling("/tmp//x") == hadoop_spelling("file:///tmp/x") == "file:/tmp/x"
    True
    >>> hadoop_spelling("s3://bucket/a//b")
    's3://bucket/a//b'
    """
    location = split_location(text)
    if not location.is_local or location.authority:
        return text
    return f"file:{_REPEATED_SLASHES.sub('/', location.local_path)}"


def join(root: str, *names: str) -> str:
    """Return a location below another one.

    >>> join("s3://b/t/", "metadata", "x")
    's3://b/t/metadata/x'
    """
    return "/".join((root.rstrip("/"), *names))


def relative_to(root: Location, inner: Location) -> str | None:
    """Return a path relative to a root on the same store: '' for the root itself, None for a path outside it.

    On a disk `//` and `/./` are one slash; on an object store they are part of the key.

    >>> relative_to(split_location("s3://b/t"), split_location("s3://b/t/data/x"))
    'data/x'
    >>> relative_to(split_location("s3://b/t"), split_location("s3://b/table2/x")) is None
    True
    """
    if store_of(root) != store_of(inner):
        return None
    base, path = root.path, inner.path
    if root.is_local:
        base, path = _REPEATED_SLASHES.sub("/", base), _REPEATED_SLASHES.sub("/", path)
    base = base.rstrip("/")
    if path.rstrip("/") == base:
        return ""
    return path[len(base) + 1 :] if path.startswith(base + "/") else None


def store_of(location: Location) -> tuple[str, str]:
    """Return the store that holds a location, the same for all names of S3."""
    return "s3" if location.is_s3 else location.scheme, location.authority
