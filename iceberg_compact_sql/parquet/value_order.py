"""The order of a column's values, as the format defines it for bounds in statistics and column indexes."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from iceberg_compact_sql.parquet.schema import LeafColumn

TYPE_DEFINED_ORDER = 1
_UNORDERED = frozenset({"INTERVAL", "FLOAT16", "LOGICAL", "UNKNOWN"})
_INTEGER_BYTES = {"INT32": 4, "INT64": 8}
_FLOATS = {"FLOAT": struct.Struct("<f"), "DOUBLE": struct.Struct("<d")}


def order_key(leaf: LeafColumn, column_order: int | None) -> Callable[[bytes], Any] | None:
    """Return a key that sorts bounds of the column; None if their order is unknown.

    The key raises ValueError for bytes that are not a value of the column.
    """
    logical = leaf.logical[0] if leaf.logical else None
    if column_order != TYPE_DEFINED_ORDER or logical in _UNORDERED:
        return None
    if leaf.physical == "BOOLEAN":
        return lambda raw: _exact(raw, 1)[0]
    if leaf.physical in _INTEGER_BYTES:
        width = _INTEGER_BYTES[leaf.physical]
        signed = not (leaf.logical is not None and logical == "INT" and leaf.logical[2] is False)
        return lambda raw: int.from_bytes(_exact(raw, width), "little", signed=signed)
    if leaf.physical in _FLOATS:
        layout = _FLOATS[leaf.physical]
        return lambda raw: layout.unpack(_exact(raw, layout.size))[0]
    if leaf.physical in ("BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY"):
        if logical == "DECIMAL":
            return lambda raw: int.from_bytes(raw, "big", signed=True)
        return lambda raw: raw
    return None


def widened_zero(leaf: LeafColumn, bound: bytes, *, lower: bool) -> bytes:
    """Return the bound; a zero of a float column becomes -0.0 below and +0.0 above, as the format asks."""
    layout = _FLOATS.get(leaf.physical)
    if layout is None or layout.unpack(bound)[0] != 0:
        return bound
    return layout.pack(-0.0 if lower else 0.0)


def _exact(raw: bytes, width: int) -> bytes:
    if len(raw) != width:
        raise ValueError(f"a bound has {len(raw)} bytes, not {width}")
    return raw
