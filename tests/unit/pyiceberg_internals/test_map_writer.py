"""Maps of statistics are written byte for byte as pyiceberg writes them."""

from __future__ import annotations

import io

from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.avro.decoder import new_decoder
from pyiceberg.avro.encoder import BinaryEncoder
from pyiceberg.avro.resolver import construct_reader, construct_writer
from pyiceberg.avro.writer import Writer
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record
from pyiceberg.types import BinaryType, IntegerType, LongType, MapType, NestedField, StringType

from iceberg_compact_sql.pyiceberg_internals.avro.map_writer import with_fast_maps

SCHEMA = Schema(
    NestedField(1, "counts", MapType(2, IntegerType(), 3, LongType()), required=False),
    NestedField(4, "bounds", MapType(5, IntegerType(), 6, BinaryType()), required=False),
    NestedField(7, "names", MapType(8, StringType(), 9, LongType()), required=True),
)
# Counts: pyiceberg reads negative numbers of such maps wrong.
numbers = st.integers(0, 2**63 - 1)
keys = st.integers(0, 2**31 - 1)


def written(writer: Writer, record: Record) -> bytes:
    out = io.BytesIO()
    writer.write(BinaryEncoder(out), record)  # type: ignore[arg-type]
    return out.getvalue()


@given(
    st.none() | st.dictionaries(keys, numbers),
    st.none() | st.dictionaries(keys, st.binary(max_size=200)),
    st.dictionaries(st.text(max_size=3), numbers, max_size=2),
)
def test_the_same_bytes(counts: dict[int, int] | None, bounds: dict[int, bytes] | None, names: dict[str, int]) -> None:
    slow = construct_writer(SCHEMA)
    record = Record(counts, bounds, names)
    expected = written(slow, record)
    assert written(with_fast_maps(slow), record) == expected
    # What was read keeps its numbers in a form of pyiceberg's own.
    read = construct_reader(SCHEMA).read(new_decoder(expected))
    assert written(with_fast_maps(slow), Record(*(read[at] for at in range(3)))) == expected
