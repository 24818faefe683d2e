"""Writes the statistics maps of manifest entries in one step each: pyiceberg writes them byte by byte.

A commit rewrites the entries of every manifest that it changes. Each entry has six maps of all columns, which take
nearly all of the time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from pyiceberg.avro.encoder import BinaryEncoder
from pyiceberg.avro.writer import BinaryWriter, IntegerWriter, MapWriter, OptionWriter, StructWriter, Writer
from pyiceberg.utils.lazydict import LazyDict

_END = _EMPTY = b"\0"


def with_fast_maps(writer: Writer) -> Writer:
    """Return a writer of the same bytes with fast maps from integers to integers or bytes."""
    if isinstance(writer, StructWriter):
        return StructWriter(tuple((position, with_fast_maps(field)) for position, field in writer.field_writers))
    if isinstance(writer, OptionWriter):
        return OptionWriter(with_fast_maps(writer.option))
    if isinstance(writer, MapWriter) and isinstance(writer.key_writer, IntegerWriter):
        if isinstance(writer.value_writer, IntegerWriter):
            return _IntegersWriter(writer.key_writer, writer.value_writer)
        if isinstance(writer.value_writer, BinaryWriter):
            return _BytesWriter(writer.key_writer, writer.value_writer)
    return writer


# Cached: column ids, and counts and sizes, repeat in many files.
@lru_cache(maxsize=8192)
def _integer(value: int) -> bytes:
    """Encode an integer in Avro's variable-length zig-zag coding.

    >>> [_integer(value).hex() for value in (0, -1, 1, 64, -(2**63))]
    ['00', '01', '02', '8001', 'ffffffffffffffffff01']
    """
    left = (value << 1) ^ (value >> 63)
    out = bytearray()
    while left & ~0x7F:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    out.append(left)
    return bytes(out)


def _entries(values: Mapping[int, Any]) -> Mapping[int, Any]:
    # pyiceberg's lazy map would look up each key again.
    return (values._dict or values._build_dict()) if isinstance(values, LazyDict) else values


# Two classes: pyiceberg treats writers of one class with equal fields as equal.
@dataclass(frozen=True)
class _IntegersWriter(MapWriter):
    def write(self, encoder: BinaryEncoder, val: Mapping[int, int]) -> None:
        entries = _entries(val)
        parts = [_integer(len(entries))]
        for key, value in entries.items():
            parts += (_integer(key), _integer(value))
        encoder.write(b"".join(parts) + _END if entries else _EMPTY)


@dataclass(frozen=True)
class _BytesWriter(MapWriter):
    def write(self, encoder: BinaryEncoder, val: Mapping[int, bytes]) -> None:
        parts = [_integer(len(val))]
        for key, value in val.items():
            parts += (_integer(key), _integer(len(value)), value)
        encoder.write(b"".join(parts) + _END if val else _EMPTY)
