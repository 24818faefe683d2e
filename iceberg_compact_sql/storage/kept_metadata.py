"""Keeps the metadata files of a run in memory, so that each is read from its store once.

Iceberg never changes a manifest, a manifest list or a metadata file whose name has a uuid: a new version has a new
name. Which version is current is always asked of the catalog. `vN.metadata.json` of a hadoop catalog has a name that
another table can reuse: it is not kept. Local files are not kept either, because reading them again is cheap.
"""

from __future__ import annotations

import contextlib
import contextvars
import re
import threading
from collections.abc import Iterator

_MAX_BYTES = 128 * 1024**2
_IMMUTABLE = re.compile(
    r"[^/]+\.avro|\d+-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}(\.gz)?\.metadata\.json(\.gz)?"
)


def is_immutable(path: str) -> bool:
    """Whether a file is metadata whose content never changes under its name.

    >>> is_immutable("s3://b/t/metadata/snap-1-0-x.avro"), is_immutable("s3://b/t/metadata/v3.metadata.json")
    (True, False)
    """
    return _IMMUTABLE.fullmatch(path.rpartition("/")[2]) is not None


class KeptMetadata:
    """Contents by path. New files are not kept when the limit is reached; the kept ones stay."""

    def __init__(self, max_bytes: int = _MAX_BYTES) -> None:
        self._contents: dict[str, bytes] = {}
        self._free_bytes = max_bytes
        self._lock = threading.Lock()

    def get(self, path: str) -> bytes | None:
        return self._contents.get(path)

    def keep(self, path: str, content: bytes) -> None:
        with self._lock:
            if path not in self._contents and len(content) <= self._free_bytes:
                self._free_bytes -= len(content)
                self._contents[path] = content


_kept: contextvars.ContextVar[KeptMetadata | None] = contextvars.ContextVar("kept_metadata", default=None)


def kept_metadata() -> KeptMetadata | None:
    """Return the kept files of this run; None outside a run."""
    return _kept.get()


@contextlib.contextmanager
def keeping_metadata() -> Iterator[None]:
    """Keep metadata files while the block runs; a block inside another one shares its files."""
    if _kept.get() is not None:
        yield
        return
    token = _kept.set(KeptMetadata())
    try:
        yield
    finally:
        _kept.reset(token)
