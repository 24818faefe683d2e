"""The text of sort_order: every form that Iceberg takes, names as the session compares them, and every error."""

from __future__ import annotations

from typing import Any

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import DayTransform, IdentityTransform
from pyiceberg.types import (
    DecimalType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
)

from iceberg_compact_sql.errors import InvalidArgumentError
from iceberg_compact_sql.plan.layouts.order import ClusterOrder, OrderField
from iceberg_compact_sql.plan.layouts.resolve_order import OrderRequest, OrderTable, resolve_order

SCHEMA = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "K", IntegerType()),
    NestedField(3, "s", StringType()),
    NestedField(4, "dec", DecimalType(10, 2)),
    NestedField(5, "ts", TimestamptzType()),
    NestedField(6, "st", StructType(NestedField(9, "a", IntegerType()), NestedField(10, "b.c", LongType()))),
    NestedField(7, "l", ListType(11, IntegerType())),
    NestedField(8, "m", MapType(12, StringType(), 13, IntegerType())),
)
OWN = SortOrder(
    SortField(1, transform=IdentityTransform(), direction=SortDirection.DESC, null_order=NullOrder.NULLS_LAST),
    SortField(5, transform=DayTransform(), direction=SortDirection.ASC, null_order=NullOrder.NULLS_LAST),
    order_id=3,
)
OLD = SortOrder(
    SortField(3, transform=IdentityTransform(), direction=SortDirection.ASC, null_order=NullOrder.NULLS_FIRST),
    order_id=1,
)
ID, DAY = OrderField(1), "day"


def table(**changes: Any) -> OrderTable:
    settings: dict[str, Any] = {
        "name": "lake.db.t",
        "schema": SCHEMA,
        "orders": (SortOrder(order_id=0), OLD, OWN),
        "current_order": OWN,
        "output_spec": PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "K")),
        "case_sensitive": False,
    }
    return OrderTable(**{**settings, **changes})


def resolved(text: str | None, layout: Any = None, **changes: Any) -> ClusterOrder:
    return resolve_order(OrderRequest(layout, text), table(**changes)).order


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("id", [ID]),
        ("`id`", [ID]),
        ("ID", [ID]),
        ("st.a", [OrderField(9)]),
        ("`st`.`a`", [OrderField(9)]),
        ("St.`b.C`", [OrderField(10)]),
        ("id, id", [ID, ID]),
        ("(id, s)", [ID, OrderField(3)]),
        ("id NULLS LAST", [OrderField(1, nulls_first=False)]),
        ("id desc", [OrderField(1, descending=True, nulls_first=False)]),
        ("id DeSc nulls First", [OrderField(1, descending=True)]),
        ("identity(id)", [ID]),
        ("bucket(16, id)", [OrderField(1, "bucket[16]")]),
        ("BUCKET(id, 16) DESC", [OrderField(1, "bucket[16]", True, False)]),
        ("truncate(2, s), truncate(s, 2)", [OrderField(3, "truncate[2]")] * 2),
        ("days(ts)", [OrderField(5, DAY)]),
        ("day(ts) NULLS LAST", [OrderField(5, DAY, nulls_first=False)]),
        ("hours(ts), months(ts), years(ts)", [OrderField(5, unit) for unit in ("hour", "month", "year")]),
        ("id, bucket(4, id)", [ID, OrderField(1, "bucket[4]")]),
        ("id -- the first\n, s", [ID, OrderField(3)]),
    ],
)
def test_a_sort(text: str, fields: list[OrderField]) -> None:
    order = resolved(text)
    assert (order.layout, list(order.fields)) == ("sort", fields)


@pytest.mark.parametrize(
    ("text", "layout", "columns"),
    [
        ("zorder(id)", None, [1]),
        ("zorder(ID, s)", "sort", [1, 3]),
        ("ZOrder(id, s)", "zorder", [1, 3]),
        ("zorder(id), zorder(s)", None, [1, 3]),
        ("zorder(id) DESC", None, [1]),
        ("zorder(st.a, dec)", None, [9, 4]),
        ("hilbert(id, s)", None, [1, 3]),
        ("id DESC, s", "hilbert", [1, 3]),
        (None, "zorder", [1, 5]),
    ],
)
def test_a_curve(text: str | None, layout: Any, columns: list[int]) -> None:
    order = resolved(text, layout)
    wanted = "hilbert" if layout == "hilbert" or (text or "").startswith("hilbert") else "zorder"
    assert (order.layout, order.sort_order_id) == (wanted, 0)
    assert [field.source_id for field in order.fields] == columns
    assert order.fields == tuple(OrderField(column) for column in columns)


def test_identity_partition_columns_are_left_out_of_a_curve() -> None:
    found = resolve_order(OrderRequest(None, "zorder(k, id)"), table())
    assert [field.source_id for field in found.order.fields] == [1]
    assert found.notes == ("zorder without K: identity partition columns have one value",)


@pytest.mark.parametrize(
    ("text", "order_id"),
    [
        (None, 3),
        ("id DESC, days(ts) ASC NULLS LAST", 3),
        ("s", 1),
        ("id DESC", 0),
        ("id DESC, days(ts)", 0),
        ("id, days(ts) NULLS LAST", 0),
        ("s DESC", 0),
        ("zorder(s)", 0),
    ],
)
def test_the_id_of_a_sort_order_only_when_it_is_exactly_that_order(text: str | None, order_id: int) -> None:
    assert resolved(text, "sort").sort_order_id == order_id


@pytest.mark.parametrize(
    ("text", "ours", "iceberg"),
    [
        ('"id"', "expected a column before '\"id\"', at line 1, column 1", 'Unable to parse sortOrder: "id"'),
        ("id + 1", "expected a comma, ASC, DESC or NULLS before '+'", "Unable to parse sortOrder: id + 1"),
        ("id none", "before 'none', at line 1, column 4", "Unable to parse sortOrder: id none"),
        ("id NULLS", "expected FIRST or LAST after NULLS", "Unable to parse sortOrder: id NULLS"),
        ("", "it is empty", "Unable to parse sortOrder: "),
        (" ", "it is empty", "Unable to parse sortOrder:  "),
        ("id,", "expected a column at its end", "Unable to parse sortOrder: id,"),
        ("`id", "a quote that does not end", "Unable to parse sortOrder: `id"),
        ("zorder(id", "expected ')' at its end", "Unable to parse sortOrder: zorder(id"),
        ("zorder()", "expected a column before ')'", "Unable to parse sortOrder: zorder()"),
        ("zorder(bucket(4, id))", "expected ')' before '('", "Unable to parse sortOrder: zorder(bucket(4, id))"),
        ("lower(s)", "lower() is not a transform or a curve", "Transform is not supported: lower(s)"),
        ("bukket(4, id)", "Did you mean 'bucket'?", "Transform is not supported: bukket(4, id)"),
        ("nope", "there is no column 'nope'", "Cannot find field 'nope' in struct: struct<1: id: optional long, "),
        ("st.nope", "there is no column 'st.nope'", "Cannot find field 'st.nope' in struct: "),
        (
            "zorder(nope)",
            "there is no column 'nope'",
            "Cannot find column 'nope' in table schema (case sensitive = false): struct<1: id: optional long, ",
        ),
        ("st", "has no order. Name a field inside it.", "Cannot sort by non-primitive source field: struct<9: a: "),
        ("l", "column 'l' is of type list<int>, which has no order", "Cannot sort by non-primitive source field: list"),
        ("zorder(m)", "column 'm' is of type map<string, int>, which has no order", "Cannot sort by non-primitive"),
        ("l.element", "'l.element' is inside column 'l' of type list<int>", "Cannot find field 'l.element'"),
        ("zorder(id), s", "a curve and plain columns cannot be mixed", "Cannot mix identity sort columns and a Zorder"),
        ("zorder(id), hilbert(s)", "cannot be mixed. Choose one", "Cannot mix Zorder and Hilbert sort expressions: "),
        ("zorder(k)", "are identity partition columns", "Cannot ZOrder, all columns provided were identity partition"),
        ("hilbert(K)", "are identity partition columns", "Cannot HILBERT, all columns provided were identity"),
        ("bucket(x, id)", "bucket() takes one column", "Cannot convert transform with more than one column reference"),
        ("truncate(s)", "truncate() takes a column and a number", "Cannot find width for transform: truncate(s)"),
        ("bucket(0, id)", "a number above 0", "Unsupported width for transform: bucket(0, id)"),
        ("days(id)", "day() does not take column 'id' of type long", "Cannot bind: day cannot transform long values"),
    ],
)
def test_errors(text: str, ours: str, iceberg: str) -> None:
    with pytest.raises(InvalidArgumentError) as raised:
        resolved(text)
    assert ours in str(raised.value)
    assert raised.value.argument == "sort_order"
    assert raised.value.iceberg is not None
    assert raised.value.iceberg.message.startswith(iceberg)


def test_names_follow_the_session() -> None:
    with pytest.raises(InvalidArgumentError, match="there is no column 'ID'"):
        resolved("ID", case_sensitive=True)
    twins = Schema(NestedField(1, "id", LongType()), NestedField(2, "ID", LongType()))
    assert resolved("ID", schema=twins, case_sensitive=True).fields == (OrderField(2),)
    with pytest.raises(InvalidArgumentError, match="'Id' may be any of id, ID"):
        resolved("Id", schema=twins)


def test_strategies_that_contradict_the_order() -> None:
    with pytest.raises(InvalidArgumentError, match=r"strategy is 'hilbert', and the order is zorder\(...\)"):
        resolved("zorder(id, s)", "hilbert")
    with pytest.raises(InvalidArgumentError, match="takes plain columns, without transforms"):
        resolved("days(ts)", "zorder")
    with pytest.raises(InvalidArgumentError, match=r"table 'lake.db.t' has none of its own") as raised:
        resolved(None, "sort", current_order=SortOrder(order_id=0))
    assert raised.value.iceberg is not None
    assert raised.value.iceberg.message == (
        "Cannot sort data without a valid sort order, table 'lake.db.t' is unsorted and no sort order is provided"
    )
