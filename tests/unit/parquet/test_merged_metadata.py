"""Statistics of many chunks merged into one: never narrower than the values, in the order of the type."""

from __future__ import annotations

import math
import struct
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from iceberg_compact_sql.parquet.merged_metadata import merged_statistics
from iceberg_compact_sql.parquet.thrift import BINARY, I64, STRUCT
from tests.support.parquet_bytes import footer_of, parquet_bytes

KINDS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "int": (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    "unsigned": (pa.uint32(), st.integers(0, 2**32 - 1)),
    "double": (pa.float64(), st.floats(allow_nan=True)),
    "text": (pa.string(), st.text(max_size=4)),
    "decimal": (pa.decimal128(20, 0), st.integers(-(10**20) + 1, 10**20 - 1)),
    "boolean": (pa.bool_(), st.booleans()),
}


@st.composite
def chunks(draw: st.DrawFn) -> tuple[str, list[list[Any]]]:
    kind = draw(st.sampled_from(sorted(KINDS)))
    values = st.lists(st.none() | KINDS[kind][1], min_size=1, max_size=4)
    return kind, draw(st.lists(values, min_size=1, max_size=4))


def stored(kind: str, value: Any) -> bytes:
    """The value as one chunk of its own states it."""
    data = parquet_bytes(pa.table({"x": pa.array([value], KINDS[kind][0])}))
    bound: bytes = footer_of(data).column_trees(0)[0][1].need(12, STRUCT).need(6, BINARY)
    return bound


@given(chunks())
@settings(max_examples=120, deadline=None)
def test_merged_bounds_hold_every_value(drawn: tuple[str, list[list[Any]]]) -> None:
    kind, parts = drawn
    footers = [footer_of(parquet_bytes(pa.table({"x": pa.array(part, KINDS[kind][0])}))) for part in parts]
    orders = footers[0].column_orders
    assert orders is not None
    metas = [footer.column_trees(0)[0][1] for footer in footers]
    merged = merged_statistics(footers[0].leaves[0], orders[0], metas)
    values = [value for part in parts for value in part if value is not None]
    assert merged.get(3, I64) == sum(value is None for part in parts for value in part)
    comparable = [value for value in values if not (isinstance(value, float) and math.isnan(value))]
    low, high = merged.get(6, BINARY), merged.get(5, BINARY)
    assert (low is None) == (high is None)
    if low is None or high is None:
        # Only values without an order, or none at all, leave a chunk without bounds.
        assert kind == "double" or not comparable
    elif kind == "double":
        least, greatest = struct.unpack("<d", low)[0], struct.unpack("<d", high)[0]
        assert all(least <= value <= greatest for value in comparable)
        assert math.copysign(1, least) < 0 if least == 0 else True
        assert math.copysign(1, greatest) > 0 if greatest == 0 else True
    else:
        order = (lambda value: value.encode()) if kind == "text" else (lambda value: value)
        assert low == stored(kind, min(comparable, key=order))
        assert high == stored(kind, max(comparable, key=order))
