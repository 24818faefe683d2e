"""Metadata files of tables and views: their names and their text."""

from __future__ import annotations

import gzip

_GZIP_MAGIC = b"\x1f\x8b"


def is_metadata_json(path: str) -> bool:
    """Whether a file has the name of a table's or view's metadata file."""
    return path.endswith((".metadata.json", ".metadata.json.gz"))


def unzipped(content: bytes) -> bytes:
    """Return the content of a metadata file, decompressed if it is gzip."""
    return gzip.decompress(content) if content.startswith(_GZIP_MAGIC) else content
