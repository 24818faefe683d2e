"""Writing the statistics of manifest entries in one step a map: pyiceberg writes them byte by byte.

A commit writes anew the entries of every manifest that it touches, each with six maps of all columns; that is nearly
all of its time.
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


def with_quick_maps(writer: Writer) -> Writer:
    """A writer of the same bytes, whose maps from integers to integers or bytes are quick."""
    if isinstance(writer, StructWriter):
        return StructWriter(tuple((place, with_quick_maps(below)) for place, below in writer.field_writers))
    if isinstance(writer, OptionWriter):
        return OptionWriter(with_quick_maps(writer.option))
    if isinstance(writer, MapWriter) and isinstance(writer.key_writer, IntegerWriter):
        if isinstance(writer.value_writer, IntegerWriter):
            return _IntegersWriter(writer.key_writer, writer.value_writer)
        if isinstance(writer.value_writer, BinaryWriter):
            return _BytesWriter(writer.key_writer, writer.value_writer)
    return writer


# Column ids, and counts and sizes that many files share.
@lru_cache(maxsize=8192)
def _integer(value: int) -> bytes:
    """Avro's variable-length zig-zag coding.

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
    # pyiceberg's own view of the numbers that it read looks each one up again.
    return (values._dict or values._build_dict()) if isinstance(values, LazyDict) else values


# Two classes: to pyiceberg, writers of one class with the same fields are one and the same.
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
