"""Random nested data, written, read under the same or a wider schema, in slices: the rows are those that went in."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyiceberg.schema import Schema
from pyiceberg.types import (
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
)

from iceberg_compact_sql.rewrite.scan.arrow_types import arrow_schema
from iceberg_compact_sql.rewrite.scan.fields import file_fields
from iceberg_compact_sql.rewrite.scan.projection import Projection
from tests.support.rows_in import job_of, read_table, slice_of, task_of


class Shapes:
    """A random Iceberg type, numbered as it is drawn, and rows that fit it."""

    def __init__(self, draw: Any) -> None:
        self.draw = draw
        self.last_id = 0

    def next_id(self) -> int:
        self.last_id += 1
        return self.last_id

    def kind(self, depth: int) -> IcebergType:
        shape = self.draw(st.sampled_from(["int", "string", "struct", "list", "map"] if depth else ["int", "string"]))
        if shape == "struct":
            count = self.draw(st.integers(1, 3))
            return StructType(*(self.field(f"f{i}", depth - 1) for i in range(count)))
        if shape == "list":
            return ListType(self.next_id(), self.kind(depth - 1), element_required=self.draw(st.booleans()))
        if shape == "map":
            return MapType(
                self.next_id(),
                StringType(),
                self.next_id(),
                self.kind(depth - 1),
                value_required=self.draw(st.booleans()),
            )
        return IntegerType() if shape == "int" else StringType()

    def field(self, name: str, depth: int) -> NestedField:
        return NestedField(self.next_id(), name, self.kind(depth), required=self.draw(st.booleans()))

    def value(self, kind: IcebergType, required: bool) -> Any:
        if not required and self.draw(st.integers(0, 2)) == 0:
            return None
        if isinstance(kind, StructType):
            return {field.name: self.value(field.field_type, field.required) for field in kind.fields}
        if isinstance(kind, ListType):
            return [self.value(kind.element_type, kind.element_required) for _ in range(self.draw(st.integers(0, 3)))]
        if isinstance(kind, MapType):
            count = self.draw(st.integers(0, 2))
            return [(f"k{i}", self.value(kind.value_type, kind.value_required)) for i in range(count)]
        return (
            self.draw(st.integers(-5, 5))
            if isinstance(kind, IntegerType)
            else self.draw(st.sampled_from(["", "a", "bb"]))
        )


@st.composite
def tables(draw: Any) -> tuple[Schema, list[dict[str, Any]]]:
    shapes = Shapes(draw)
    fields = [shapes.field(f"c{i}", depth=3) for i in range(draw(st.integers(1, 2)))]
    rows = [{f.name: shapes.value(f.field_type, f.required) for f in fields} for _ in range(draw(st.integers(1, 8)))]
    return Schema(*fields), rows


def widened(kind: IcebergType) -> IcebergType:
    """The type with every int made long, every optional struct field given a new neighbour, and names changed."""
    if isinstance(kind, StructType):
        return StructType(
            *(NestedField(f.field_id, f"{f.name}x", widened(f.field_type), required=f.required) for f in kind.fields),
            NestedField(10_000 + kind.fields[0].field_id, "new", LIST_OF_NEW, required=False),
        )
    if isinstance(kind, ListType):
        return ListType(kind.element_id, widened(kind.element_type), element_required=kind.element_required)
    if isinstance(kind, MapType):
        return MapType(
            kind.key_id, StringType(), kind.value_id, widened(kind.value_type), value_required=kind.value_required
        )
    return LongType() if isinstance(kind, IntegerType) else kind


def widened_value(value: Any, kind: IcebergType) -> Any:
    if value is None:
        return None
    if isinstance(kind, StructType):
        return {f"{f.name}x": widened_value(value[f.name], f.field_type) for f in kind.fields} | {"new": None}
    if isinstance(kind, ListType):
        return [widened_value(item, kind.element_type) for item in value]
    if isinstance(kind, MapType):
        return [(key, widened_value(item, kind.value_type)) for key, item in value]
    return value


LIST_OF_NEW = ListType(99_999, StringType(), element_required=False)


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(tables(), st.integers(0, 7))
def test_any_slice_of_any_nested_data_survives(made: tuple[Schema, list[dict[str, Any]]], skipped: int) -> None:
    schema, rows = made
    arrow = arrow_schema(schema)
    batch = pa.RecordBatch.from_pylist(rows, schema=arrow).slice(min(skipped, len(rows) - 1))
    wanted = rows[min(skipped, len(rows) - 1) :]
    projection = Projection(schema, file_fields(arrow, None), identity={}, format_version=2)
    result = projection.apply(batch)
    result.validate(full=True)
    assert result.to_pylist() == wanted


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(tables())
def test_a_written_file_reads_back_under_a_wider_schema(made: tuple[Schema, list[dict[str, Any]]]) -> None:
    """Through Parquet both ways, so that required children under null structs are as a reader makes them."""
    schema, rows = made
    kind = StructType(*schema.fields)
    wider = widened(kind)
    assert isinstance(wider, StructType)
    # New struct fields need ids of their own: two structs with the same first field do not exist.
    table = Schema(*(f for f in wider.fields if f.name != "new"))
    expected = [{k: v for k, v in widened_value(row, kind).items() if k != "new"} for row in rows]
    with tempfile.TemporaryDirectory() as folder:
        first, second = Path(folder) / "a.parquet", Path(folder) / "b.parquet"
        same = job_of(schema)
        pq.write_table(pa.Table.from_pylist(rows, schema=arrow_schema(schema)), first)
        once = read_table(same, task_of([slice_of(str(first))]))
        assert once.to_pylist() == rows
        pq.write_table(once, second)
        assert read_table(_unique_new_ids(table), task_of([slice_of(str(second))])).to_pylist() == expected


def _unique_new_ids(schema: Schema) -> Any:
    """The job of a schema in which every added list element has an id of its own."""
    text = schema.model_dump_json()
    number = 100_000
    while '"element-id":99999' in text:
        text = text.replace('"element-id":99999', f'"element-id":{number}', 1)
        number += 1
    return job_of(Schema.model_validate_json(text))
