"""Reads a few columns of an Avro file and skips the others, with pyiceberg's Cython decoder.

pyiceberg resolves the whole schema for every file and builds an object for every record. Planning and reclaiming read
thousands of manifests, and need only a few values of each entry.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyiceberg.avro.codecs import KNOWN_CODECS
from pyiceberg.avro.decoder import new_decoder

from iceberg_compact_sql.pyiceberg_internals.avro.generated_reader import rows_reader

_MAGIC = b"Obj\x01"
_SYNC_BYTES = 16
_BATCH_BYTES = 64 * 1024
# The decoder does not check bounds. A number past the end stops at a zero byte; up to three are read between checks.
_END = b"\0\0\0"
# The compiled class; looking it up for every block costs as much as reading a record.
_Decoder: Any = type(new_decoder(b""))


def read_columns(content: bytes, field_ids: tuple[int, ...]) -> Iterator[list[Any]]:
    """Yield rows with the values of the given Iceberg field ids, in that order; None for a field that the file lacks.

    Fields of nested records are found at any depth. A truncated or damaged file raises ValueError, or the error
    of its codec; it never ends early. A block is yielded only after all of it was read.
    """
    if content[:4] != _MAGIC:
        raise ValueError("not an Avro file")
    frame = _Decoder(content + _END)
    header = _read_header(frame, len(content))
    codec_name = header.get("avro.codec", b"null").decode()
    if codec_name not in KNOWN_CODECS:
        raise ValueError(f"Avro files with the codec {codec_name!r} are not supported")
    read_rows = rows_reader(header["avro.schema"], field_ids)
    for blocks, records in _batches(_blocks(frame, content, KNOWN_CODECS[codec_name])):  # type: ignore[index]
        yield from read_rows(_Decoder(records), blocks)


def read_header(content: bytes) -> dict[str, bytes]:
    """Return the metadata in the header of an Avro file."""
    return _read_header(_Decoder(content + _END), len(content))


def _batches(blocks: Iterator[tuple[int, bytes]]) -> Iterator[tuple[list[tuple[int, int]], bytes]]:
    """Join small blocks: yield the record count and the end of each, and their bytes. pyiceberg writes tiny blocks."""
    block_ends: list[tuple[int, int]] = []
    parts: list[bytes] = []
    end = 0
    for count, block in blocks:
        end += len(block)
        block_ends.append((count, end))
        parts.append(block)
        if end >= _BATCH_BYTES:
            yield block_ends, b"".join(parts)
            block_ends, parts, end = [], [], 0
    yield block_ends, b"".join(parts)


def _read_header(frame: Any, end: int) -> dict[str, bytes]:
    header: dict[str, bytes] = {}
    frame.skip(len(_MAGIC))
    while count := frame.read_int():
        if count < 0:
            # A negative count is followed by the block's size in bytes.
            count = -count
            frame.read_int()
        for _ in range(count):
            key = _read_bytes(frame, end)
            header[key.decode()] = _read_bytes(frame, end)
    return header


def _read_bytes(frame: Any, end: int) -> bytes:
    length = frame.read_int()
    if not 0 <= length <= end - frame.tell():
        raise ValueError("damaged Avro file: it ends inside its header")
    content: bytes = frame.read(length)
    return content


def _blocks(frame: Any, content: bytes, codec: Any) -> Iterator[tuple[int, bytes]]:
    """Yield the record count and the decompressed bytes of each block."""
    end = len(content)
    if frame.tell() + _SYNC_BYTES > end:
        raise ValueError("damaged Avro file: it ends inside its header")
    sync = frame.read(_SYNC_BYTES)
    read_int, tell, skip = frame.read_int, frame.tell, frame.skip
    while tell() < end:
        count, length, start = read_int(), read_int(), tell()
        if not 0 <= length <= end - start:
            raise ValueError("damaged Avro file: it ends inside a block")
        stop = start + length
        if content[stop : stop + _SYNC_BYTES] != sync:
            raise ValueError("damaged Avro file: a block does not end with its sync marker")
        skip(length + _SYNC_BYTES)
        block = content[start:stop]
        if codec:
            block = codec.decompress(block)
        # A record takes at least one byte.
        if not 0 <= count <= len(block):
            raise ValueError(f"damaged Avro file: a block of {len(block)} bytes claims to hold {count} records")
        yield count, block
