"""Two stages for tests of `engine.blob_shuffle`: numbers are sent to buckets and come back as sorted lists."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from iceberg_compact_sql.engine.blob_shuffle import MAX_BLOB_BYTES, Blob

BUCKETS = 7


def scatter_numbers(argument: dict[str, Any], item: dict[str, Any]) -> Iterator[Blob]:
    """Emit each number of the item to the bucket of its remainder; ranks go down, so that the shuffle must sort."""
    _die_once(argument.get("kill_scatter"), item["number"])
    if argument.get("large_blob"):
        yield Blob(0, 0, bytes(MAX_BLOB_BYTES + 1))
    for value in item["values"]:
        yield Blob(value % BUCKETS, 1_000_000 - value, pa.py_buffer(struct.pack("<q", value)))


def gather_numbers(argument: dict[str, Any], bucket: int, blobs: Iterator[Blob]) -> Iterator[list[int]]:
    """Yield the numbers of a bucket in the order in which they came; stop early if the argument says so."""
    _die_once(argument.get("kill_gather"), bucket)
    values = []
    for blob in blobs:
        assert blob.bucket == bucket
        values.append(struct.unpack("<q", bytes(blob.payload))[0])
        if argument.get("stop_early"):
            break
    yield values


def _die_once(folder: str | None, number: int) -> None:
    """Kill this worker the first time that it comes here for number 2."""
    if folder is not None and number == 2:
        mark = Path(folder, "died")
        if not mark.exists():
            mark.touch()
            os._exit(9)
