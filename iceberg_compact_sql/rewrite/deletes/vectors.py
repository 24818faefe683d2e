"""Deletion vectors: one blob of a Puffin file, checked by length, magic and CRC before it is used."""

from __future__ import annotations

import zlib

import numpy as np
from pyiceberg.io import FileIO
from pyroaring import BitMap64

from iceberg_compact_sql.rewrite.deletes.row_bitmap import Positions
from iceberg_compact_sql.rewrite.scan.inputs import InputFileError, input_errors, open_input
from iceberg_compact_sql.table.model import LiveDelete

MAGIC = bytes.fromhex("d1d33964")


def read_vector(io: FileIO, delete: LiveDelete) -> Positions:
    """Return the positions in a deletion vector; raise `InputFileError` if it is damaged."""
    offset, size = delete.content_offset, delete.content_size_bytes
    if offset is None or size is None:
        raise InputFileError(delete.path, "the deletion vector's offset or size is not in the manifest")
    with input_errors(delete.path), open_input(io, delete.path, delete.size_bytes) as file:
        blob = file.read_at(size, offset)
    if len(blob) != size:
        raise InputFileError(delete.path, f"the deletion vector at {offset} is cut off")
    return decode_vector(delete.path, blob)


def decode_vector(path: str, blob: bytes) -> Positions:
    """Return positions of a `deletion-vector-v1` blob: length, magic, 64-bit roaring bitmap, CRC-32 (Puffin spec)."""
    if len(blob) < 20 or int.from_bytes(blob[:4], "big") != len(blob) - 8:
        raise InputFileError(path, "the deletion vector's length does not match the manifest")
    if blob[4:8] != MAGIC:
        raise InputFileError(path, "the deletion vector does not start with its magic bytes")
    if zlib.crc32(blob[4:-4]) != int.from_bytes(blob[-4:], "big"):
        raise InputFileError(path, "the deletion vector's checksum is wrong")
    try:
        positions = BitMap64.deserialize(bytes(blob[8:-4])).to_array()
    except (ValueError, MemoryError) as error:
        raise InputFileError(path, f"the deletion vector is not a bitmap: {error}") from None
    return np.frombuffer(positions, dtype=np.uint64).astype(np.int64)
