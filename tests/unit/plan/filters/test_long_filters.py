"""Long filters stay small expressions: one IN for many comparisons of a column, in a shallow tree."""

from __future__ import annotations

import contextlib
import gc
import math

import pytest
from pyiceberg.expressions import And, BooleanExpression, In, NotIn, Or
from pyiceberg.schema import Schema
from pyiceberg.types import DateType, DecimalType, LongType, NestedField, TimestampType, TimestamptzType

from iceberg_compact_sql.errors import InvalidArgumentError
from iceberg_compact_sql.plan.filters import long_lists
from iceberg_compact_sql.plan.filters.long_lists import ShortenedFilter
from iceberg_compact_sql.plan.filters.parse import parse_where
from iceberg_compact_sql.table.pruning import ColumnStatistics, FilePruner

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "n", LongType(), required=False),
    NestedField(3, "day", DateType(), required=False),
    NestedField(4, "price", DecimalType(9, 2), required=False),
    NestedField(5, "at", TimestamptzType(), required=False),
    NestedField(6, "local", TimestampType(), required=False),
)
TERMS = 3000


def parsed(text: str) -> BooleanExpression:
    return parse_where(text, SCHEMA, time_zone="Europe/Berlin")


@pytest.mark.parametrize("column", ["id", "n"])
def test_chains_of_comparisons_are_one_list(column: str) -> None:
    either = parsed(" OR ".join(f"{column} = {i}" for i in range(TERMS)))
    assert isinstance(either, In) and len(either.literals) == TERMS
    neither = parsed(" AND ".join(f"{column} != {i}" for i in range(TERMS)))
    assert isinstance(neither, NotIn) and len(neither.literals) == TERMS


def test_other_terms_stay_beside_the_list() -> None:
    assert parsed("id = 1 OR n > 5 OR id = 2") == Or(parsed("n > 5"), parsed("id IN (1, 2)"))
    assert parsed("id != 1 AND n > 5 AND id != 2") == And(parsed("n > 5"), parsed("id NOT IN (1, 2)"))
    assert parsed("id = 1 AND id = 2") == And(parsed("id = 1"), parsed("id = 2"))


@pytest.mark.parametrize("items", [[str(n) for n in range(3000)], [f"'{n}'" for n in range(3000)]])
def test_a_long_list_means_what_a_short_one_does(items: list[str]) -> None:
    found = parsed(f"id IN ({', '.join(items)})")
    assert isinstance(found, In) and {literal.value for literal in found.literals} == set(range(3000))
    assert isinstance(parsed(f"id NOT  in(\n{','.join(items)} ) AND n = 1"), And)


def test_a_list_inside_text_or_a_comment_is_not_a_list() -> None:
    values = ", ".join(str(n) for n in range(3000))
    assert parsed(f"id = 1 /* id IN ({values}) */ OR id = 2") == parsed("id IN (1, 2)")
    with pytest.raises(InvalidArgumentError, match="there is no column 'IN"):
        parsed(f"`IN ({values})` = 1")


def test_an_error_behind_a_long_list_names_its_place_in_the_text() -> None:
    text = f"id IN ({', '.join(str(n) for n in range(3000))}) AND nothing = 1"
    with pytest.raises(InvalidArgumentError, match=f"column {text.index('nothing') + 1} of the filter"):
        parsed(text)


def test_a_marker_that_the_user_writes_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="where is refused"):
        parsed("id IN (:iceberg_compact_list_0)")


DAYS = [f"DATE '20{n % 100:02}-{n // 100 % 12 + 1:02}-{n // 1200 + 1:02}'" for n in range(3000)]
TIME_PARTS = [("03", "31", ""), ("10", "27", ".5"), ("06", "01", ".000001"), ("01", "31", ".25")]
PRICES = [f"{n - 1500}.{n % 100:02}" for n in range(3000)]
# Some of them are in the hour that Berlin skips, and in the hour that it has twice.
CLOCKS = [f"2024-{m}-{d} 02:{n % 60:02}:{n // 60:02}{f}" for n in range(250) for m, d, f in TIME_PARTS]
TIMES = [f"TIMESTAMP '{clock}'" for clock in CLOCKS]
LOCAL_TIMES = [f"timestamp_ntz '{clock}'" for clock in CLOCKS]


@pytest.mark.parametrize(
    ("column", "items"),
    [
        *(("day", DAYS), ("price", PRICES), ("id", PRICES)),
        *((column, items) for items in (TIMES, LOCAL_TIMES) for column in ("at", "local", "days(at)", "hours(local)")),
    ],
)
def test_a_long_list_of_dates_times_or_decimals_is_read_without_the_parser(
    column: str, items: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = f"{column} IN ({', '.join(items)})"
    short = ShortenedFilter(text)
    assert short.text == f"{column} IN (:iceberg_compact_list_0)"
    found = parsed(text)
    monkeypatch.setattr(long_lists, "_LEAST_CHARACTERS", len(text) + 1)
    assert ShortenedFilter(text).text == text
    assert found == parsed(text)


def test_a_date_that_does_not_exist_is_refused_in_a_long_list_too() -> None:
    with pytest.raises(InvalidArgumentError, match="2024-02-30"):
        parsed(f"day IN ({', '.join(DAYS)}, DATE '2024-02-30')")


@pytest.mark.parametrize("time", ["2024-02-30 00:00:00", "2024-01-01 24:00:00", "2024-01-01 00:00:60"])
def test_a_time_that_does_not_exist_is_refused_in_a_long_list_too(time: str) -> None:
    with pytest.raises(InvalidArgumentError, match=time):
        parsed(f"at IN ({', '.join(TIMES)}, TIMESTAMP '{time}')")


def test_mixed_pairs_are_a_shallow_tree() -> None:
    """pyiceberg's visitors recurse: a tree as deep as the filter is long would exhaust the stack."""
    text = " OR ".join(f"(id = {i} AND NOT (n >= {i} OR day != DATE '2024-01-01'))" for i in range(TERMS))
    tree, depth = [parsed(text)], 0
    pruner = FilePruner(tree[0], SCHEMA, {})
    while tree := [side for node in tree if isinstance(node, (And, Or)) for side in (node.left, node.right)]:
        depth += 1
    assert depth <= 2 + math.ceil(math.log2(TERMS))
    statistics = ColumnStatistics(1, {1: 1}, {1: 0}, {}, {1: (7).to_bytes(8, "little")}, {1: (7).to_bytes(8, "little")})
    assert pruner.file_may_match(statistics)
    above = {1: TERMS.to_bytes(8, "little")}
    assert not pruner.file_may_match(ColumnStatistics(1, {1: 1}, {1: 0}, {}, above, above))


@pytest.mark.parametrize("text", ["id IN (1)", "nothing = 1"])
def test_the_garbage_collector_works_again_after_a_filter(text: str) -> None:
    with contextlib.suppress(InvalidArgumentError):
        parsed(text)
    assert gc.isenabled()
