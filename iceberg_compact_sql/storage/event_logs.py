"""Spark event logs as streams of plain text: single files and rolled folders; plain, zstd, lz4 and snappy."""

from __future__ import annotations

import io
import re
import struct
from collections.abc import Iterator
from typing import Any, BinaryIO

import pyarrow as pa

from iceberg_compact_sql.storage.stores import Stores

_ROLLED = re.compile(r"events_(\d+)_")
_OTHER_FILES = (".crc", ".json", ".txt", ".md", ".parquet", ".avro")
_BUFFER_BYTES = 1 << 20
_ZSTD, _LZ4, _SNAPPY, _LZF = b"\x28\xb5\x2f\xfd", b"LZ4Block", b"\x82SNAPPY\x00", b"ZV"
_MOST_BLOCK_BYTES = 1 << 28


class UnreadableLogError(Exception):
    """A file is not a Spark event log that can be read; the text says why, without anything of its content."""


def find_logs(stores: Stores, location: str) -> list[list[str]]:
    """Return the logs at a location, one list for each application: its parts, oldest first."""
    if not stores.of(location).has_folder(location) and stores.stat(location) is not None:
        return [[location]]
    single: list[list[str]] = []
    rolled: dict[str, list[tuple[int, str]]] = {}
    for file in stores.walk(location.rstrip("/")):
        folder, _, name = file.path.rpartition("/")
        if match := _ROLLED.match(name):
            rolled.setdefault(folder, []).append((int(match[1]), file.path))
        elif not name.startswith((".", "_", "appstatus_")) and not name.endswith(_OTHER_FILES):
            single.append([file.path])
    # By number: events_10 comes after events_9.
    parts = [[path for _, path in sorted(found)] for _, found in sorted(rolled.items())]
    return sorted(single) + parts


def open_log(stores: Stores, path: str) -> BinaryIO:
    """Open one part of a log as plain text, by the codec of its first bytes; a cut stream ends where it was cut."""
    raw: Any = stores.open_input(path)
    head = raw.read(8)
    raw.seek(0)
    if head[:4] == _ZSTD:
        return io.BufferedReader(_Cut(pa.CompressedInputStream(raw, "zstd")), _BUFFER_BYTES)
    if head == _LZ4:
        return io.BufferedReader(_Blocks(_lz4_blocks(raw), raw), _BUFFER_BYTES)
    if head == _SNAPPY:
        return io.BufferedReader(_Blocks(_snappy_blocks(raw), raw), _BUFFER_BYTES)
    if head[:2] == _LZF:
        raw.close()
        raise UnreadableLogError("it is compressed with lzf, which is not supported; use zstd, lz4 or snappy")
    if head[:1] not in (b"{", b""):
        raw.close()
        raise UnreadableLogError("it does not begin as a Spark event log")
    return io.BufferedReader(_Cut(raw), _BUFFER_BYTES)


class _Cut(io.RawIOBase):
    """A stream that ends where it is damaged: the log of a running application ends inside a frame."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            content = self._stream.read(len(buffer))
        except OSError:
            return 0
        buffer[: len(content)] = content
        return len(content)

    def close(self) -> None:
        self._stream.close()
        super().close()


class _Blocks(io.RawIOBase):
    """A stream over decompressed blocks."""

    def __init__(self, blocks: Iterator[bytes], raw: Any) -> None:
        self._blocks = blocks
        self._raw = raw
        self._rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._rest:
            block = next(self._blocks, None)
            if block is None:
                return 0
            self._rest = block
        count = min(len(buffer), len(self._rest))
        buffer[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count

    def close(self) -> None:
        self._raw.close()
        super().close()


def _lz4_blocks(raw: Any) -> Iterator[bytes]:
    """Yield the blocks of lz4-java's own format: magic, token, both lengths in little endian, checksum, raw block."""
    codec = pa.Codec("lz4_raw")
    while True:
        head = raw.read(21)
        if len(head) < 21:
            return
        magic, token, packed, plain, _ = struct.unpack("<8sBiiI", head)
        if magic != _LZ4 or not 0 <= packed <= _MOST_BLOCK_BYTES or not 0 <= plain <= _MOST_BLOCK_BYTES:
            return
        body = raw.read(packed)
        if len(body) < packed:
            return
        if not plain:
            continue
        try:
            yield body if token & 0xF0 == 0x10 else codec.decompress(body, plain, asbytes=True)
        except OSError:
            return


def _snappy_blocks(raw: Any) -> Iterator[bytes]:
    """Yield the blocks of xerial's format: a header of 16 bytes, then length in big endian and raw snappy."""
    codec = pa.Codec("snappy")
    raw.read(16)
    while True:
        head = raw.read(4)
        if len(head) < 4:
            return
        if head == _SNAPPY[:4]:
            # A second stream behind the first, with a header of its own.
            raw.read(12)
            continue
        size = struct.unpack(">i", head)[0]
        body = raw.read(size) if 0 < size <= _MOST_BLOCK_BYTES else b""
        plain = _varint(body)
        if len(body) < size or not body or plain > _MOST_BLOCK_BYTES:
            return
        try:
            yield codec.decompress(body, plain, asbytes=True)
        except OSError:
            return


def _varint(body: bytes) -> int:
    """Return the plain length at the beginning of a snappy block."""
    value = 0
    for index, byte in enumerate(body[:5]):
        value |= (byte & 127) << (7 * index)
        if byte < 128:
            break
    return value
