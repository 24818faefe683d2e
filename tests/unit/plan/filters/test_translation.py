"""Which of Iceberg's two errors a filter gets; tests/integration/java compares them with Iceberg's own."""

from __future__ import annotations

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, NestedField, StringType

from iceberg_compact_sql.errors import InvalidArgumentError
from iceberg_compact_sql.plan.filters.parse import parse_where

SCHEMA = Schema(NestedField(1, "c1", IntegerType()), NestedField(2, "s", StringType()))
CONVERT = "Cannot convert Spark filter: {} to Iceberg expression"
TRANSLATE = "Cannot translate Spark expression: {} to data source filter"


@pytest.mark.parametrize(
    "message, filters",
    [
        (
            CONVERT,
            ("substr(s, 2) = 'fo'", "s like '%x'", "s like 'a%x'", "c1 + 1 = 3", "c1 > length(s)"),
        ),
        (TRANSLATE, ("encode(s, 'utf-8') = 'fo'", "s like 'a_x'", "s rlike 'a'", "upper(reverse(s)) = 'A'")),
    ],
)
def test_the_functions_in_a_filter_decide_which_error_iceberg_raises(message: str, filters: tuple[str, ...]) -> None:
    for text in filters:
        with pytest.raises(InvalidArgumentError) as caught:
            parse_where(text, SCHEMA, time_zone="UTC")
        assert caught.value.iceberg is not None, text
        assert caught.value.iceberg.message == message.format(text)


@pytest.mark.parametrize("text", ["no_such_function(c1) = 1", "1", "nope = 1", "c1 ="])
def test_a_filter_that_spark_cannot_read_has_no_error_of_its_own(text: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        parse_where(text, SCHEMA, time_zone="UTC")
    assert caught.value.iceberg is None
