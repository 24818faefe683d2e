"""Bounds and counts of single columns of a data file, decoded from its manifest entry."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

from pyiceberg.types import DoubleType, IcebergType, LongType

from iceberg_compact_sql.table.decode_bound import decode_bound


@dataclass(frozen=True, slots=True)
class ColumnBounds:
    """What a manifest entry knows about one column; None where it is not known. Bounds leave out nulls and NaN.

    Bounds of long strings and binaries may be cut: then they are wider than the values.
    """

    lower: Any = None
    upper: Any = None
    values: int | None = None
    nulls: int | None = None
    nans: int | None = None


def decode_column_bound(kind: IcebergType | None, raw: bytes | None) -> Any:
    """Return the value of a bound, also one that was written before an int became long or a float became double."""
    if kind is None or raw is None:
        return None
    if len(raw) == 4 and isinstance(kind, LongType):
        return int.from_bytes(raw, "little", signed=True)
    if len(raw) == 4 and isinstance(kind, DoubleType):
        return struct.unpack("<f", raw)[0]
    return decode_bound(kind, raw)
