"""Long filters stay small expressions: one IN for many comparisons of a column, in a shallow tree."""

from __future__ import annotations

import pytest
from pyiceberg.expressions import And, BooleanExpression, In, NotIn, Or
from pyiceberg.schema import Schema
from pyiceberg.types import DateType, DecimalType, LongType, NestedField

from iceberg_compact_sql.errors import InvalidArgumentError
from iceberg_compact_sql.plan.filters import long_lists
from iceberg_compact_sql.plan.filters.long_lists import ShortenedFilter
from iceberg_compact_sql.plan.filters.parse import parse_where

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "n", LongType(), required=False),
    NestedField(3, "day", DateType(), required=False),
    NestedField(4, "price", DecimalType(9, 2), required=False),
)
TERMS = 3000


def parsed(text: str) -> BooleanExpression:
    return parse_where(text, SCHEMA, time_zone="UTC")


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
PRICES = [f"{n - 1500}.{n % 100:02}" for n in range(3000)]


@pytest.mark.parametrize(("column", "items"), [("day", DAYS), ("price", PRICES), ("id", PRICES)])
def test_a_long_list_of_dates_or_decimals_is_read_without_the_parser(
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
