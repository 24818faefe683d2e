"""Doubles of Avro files as they are: pyiceberg's compiled decoder reads them through a 32-bit float.

A partition value of 0.1 would come out as 0.10000000149 and 1e300 as infinity, and be written back so; engines take
the values of identity columns from there.
"""

from __future__ import annotations

import struct

from pyiceberg.avro.decoder import BinaryDecoder
from pyiceberg.avro.file import AvroFile
from pyiceberg.avro.reader import DoubleReader

__all__ = ["AvroFile"]

_DOUBLE = struct.Struct("<d")


def _read_exactly(self: DoubleReader, decoder: BinaryDecoder) -> float:
    value: float = _DOUBLE.unpack(decoder.read(_DOUBLE.size))[0]
    return value


# On the class: readers are made deep inside pyiceberg, and one of each kind serves the whole process.
DoubleReader.read = _read_exactly  # type: ignore[method-assign]
