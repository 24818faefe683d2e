"""Reads doubles of Avro files exactly: pyiceberg's compiled decoder reads them through a 32-bit float.

A partition value of 0.1 would become 0.10000000149, and 1e300 infinity, and be written back. Engines read the values of
identity columns from there.
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


# Set on the class: pyiceberg creates the readers internally, one of each kind for the process.
DoubleReader.read = _read_exactly  # type: ignore[method-assign]
