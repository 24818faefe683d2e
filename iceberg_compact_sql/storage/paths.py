"""When two texts name the same file: the one place that compares paths of manifests, catalogs and listings."""

from __future__ import annotations

import re

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*):(/{0,3})")
# Names of one object store: a file written through one of them is read through the other.
_SAME_SCHEME = {"s3a": "s3", "s3n": "s3", "abfss": "abfs", "wasbs": "wasb"}


def same_file_key(path: str) -> str:
    """The text under which a path is compared; equal for two spellings of one file, never shown nor written back.

    Java writes local paths as `file:/x`, pyiceberg as `file:///x`, people as `/x`. Everything after the scheme is
    kept as it is: no decoding of `%20`, no folding of `//` or case, since those may be different objects.

    >>> same_file_key("file:/tmp/x") == same_file_key("file:///tmp/x") == same_file_key("/tmp/x")
    True
    >>> same_file_key("s3a://bucket/a%20b") == same_file_key("s3://bucket/a%20b")
    True
    """
    if path.startswith("s3://"):
        return path
    if path.startswith("/"):
        return f"file:{path}"
    match = _SCHEME.match(path)
    if match is None:
        return path
    scheme = match[1].lower()
    rest = path[match.end() :]
    if scheme == "file":
        if match[2] == "//" and rest.startswith("localhost/"):
            rest = rest.removeprefix("localhost/")
        return f"file:/{rest}"
    return f"{_SAME_SCHEME.get(scheme, scheme)}:{match[2]}{rest}"
