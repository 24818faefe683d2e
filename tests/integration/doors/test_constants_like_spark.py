"""Constants of a CALL beside what Spark itself makes of the same text."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import SparkSession

from iceberg_compact_sql.call.grammar import parse_call
from iceberg_compact_sql.call.literals import TextSettings
from iceberg_compact_sql.units import Months, zone

MOMENTS = [
    "TIMESTAMP '2026'",
    "TIMESTAMP '2026-02'",
    "TIMESTAMP '2026-2-3'",
    "TIMESTAMP '2026-02-03 4'",
    "TIMESTAMP ' 2026-02-03 4:5 '",
    "TIMESTAMP '2026-02-03 04:05:06.'",
    "TIMESTAMP '2026-02-03T04:05:06.1234567890'",
    "TIMESTAMP '2026-02-03 04:05:06+1:00'",
    "TIMESTAMP '2026-02-03 04:05:06-01:3'",
    "TIMESTAMP '2026-02-03 04:05:06 UT+1'",
    "TIMESTAMP '2026-02-03 04:05:06 America/New_York'",
    "TIMESTAMP_NTZ '2026-02-03 04:05:06+05:00'",
    "TIMESTAMP_LTZ '2026-02-03 04:05:06+05:00'",
    "CAST('2026-02-03 04:05:06+05:00' AS TIMESTAMP)",
    "CAST(TIMESTAMP_LTZ '2026-02-03 23:30:00-05:00' AS TIMESTAMP_NTZ)",
    "CAST(DATE '2026-02-03' AS TIMESTAMP)",
    "TIMESTAMP '2026-10-26 02:30:00' - INTERVAL 1 DAY",
    "TIMESTAMP '2026-10-24 02:30:00' + INTERVAL 1 DAY",
    "TIMESTAMP '2026-11-25 02:30:00' - INTERVAL 1 MONTH",
    "TIMESTAMP '2026-10-25 02:30:00' + INTERVAL 1 HOUR",
    "TIMESTAMP '2026-03-28 02:30:00' + INTERVAL 1 DAY",
    "TIMESTAMP '2026-03-29 12:00:00' - INTERVAL '1 12:00:00' DAY TO SECOND",
    "DATE '2026-02-03' - INTERVAL 36 HOURS",
]
DATES = [
    "DATE '2026'",
    "DATE '2026-2'",
    "DATE '2026-02-03T04:05'",
    "DATE ' 2026-02-03 anything'",
    "CAST(TIMESTAMP '2026-02-03 23:30:00-05:00' AS DATE)",
    "date_sub(TIMESTAMP '2026-02-03 23:30:00-05:00', 7)",
    "date_add('2026-02-03', 7)",
    "INTERVAL 1 MONTH + DATE '2026-01-31'",
]
NUMBERS = [
    "7 / 2",
    "1 / 3",
    "1.0 / 3",
    "10 / 1.5",
    "2.0000 / 30.00",
    "-7 div 2",
    "7.5 div 2",
    "-7.5 % 2",
    "1.1 * 1.1",
    "0.1 + 0.2",
    "0.1e0 + 0.2e0",
    "12345678901234567890.123456789 + 0.000000001",
    "CAST('1.5' AS DECIMAL)",
    "CAST(-1.555 AS DECIMAL(10, 2))",
    "CAST(2.5e0 AS DECIMAL(3, 1))",
    "CAST(-7.9 AS INT)",
    "CAST(' +7 ' AS SMALLINT)",
    "CAST('1e3' AS DOUBLE)",
    "0.5e0 + CAST(1 AS TINYINT)",
    "1.5BD - 2L",
]
TEXTS = [
    "CAST(true AS STRING)",
    "CAST(1.50 AS STRING)",
    "CAST(DATE '2026-2-3' AS STRING)",
    "7.50 || 'd'",
    "concat('a', 1, true)",
    r"'a\u0041\n\'\101\%'",
    "'it''s' \"s\"",
    r"r'a\n'",
]
SPANS = [
    "INTERVAL '1 02:03:04.5' DAY TO SECOND",
    "INTERVAL '-1 2' DAY TO HOUR",
    "INTERVAL '100:03:04' HOUR TO SECOND",
    "INTERVAL '90:04.123456789' MINUTE TO SECOND",
    "INTERVAL '1-11' YEAR TO MONTH",
    "INTERVAL 2 WEEKS 3 DAYS",
]
# Spark takes none of these, and neither do we.
REFUSED = [
    "TIMESTAMP '2026-02-03 04:05:06+18:01'",
    "DATE '2026-02-03Z'",
    "INTERVAL '1 25:00:00' DAY TO SECOND",
    "INTERVAL '1 02:60' DAY TO MINUTE",
    "INTERVAL '1 02:03' DAY TO SECOND",
    "INTERVAL '1-12' YEAR TO MONTH",
    "INTERVAL 1.5 MONTHS",
    "CAST('1_000' AS INT)",
    "CAST('7.5' AS INT)",
    "CAST(300 AS TINYINT)",
    "CAST(12345 AS DECIMAL(3, 0))",
    "CAST(1e30 AS BIGINT)",
    "128Y",
    "1e400",
]
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)
SOME_MOMENT = "TIMESTAMP_LTZ '2026-05-15 10:00:00Z'"


@pytest.fixture(params=["TIMESTAMP_LTZ", "TIMESTAMP_NTZ"])
def berlin(java_spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[TextSettings]:
    java_spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    java_spark.conf.set("spark.sql.timestampType", request.param)
    yield TextSettings("Europe/Berlin", zoneless=request.param == "TIMESTAMP_NTZ")
    java_spark.conf.unset("spark.sql.timestampType")
    java_spark.conf.set("spark.sql.session.timeZone", "UTC")


def test_constants_are_sparks(java_spark: SparkSession, berlin: TextSettings) -> None:
    def micros(moment: Any) -> int:
        aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=zone(berlin.time_zone))
        return (aware - EPOCH) // dt.timedelta(microseconds=1)

    def end_of(span: Any) -> int:
        start = dt.datetime(2026, 5, 15, 12, tzinfo=zone(berlin.time_zone))
        return micros(span.added_to(start) if isinstance(span, Months) else start + span)

    kinds: list[tuple[list[str], str, Callable[[Any], Any]]] = [
        (MOMENTS, "unix_micros(CAST(({}) AS TIMESTAMP_LTZ))", micros),
        (DATES, "{}", lambda value: value),
        (NUMBERS, "{}", lambda value: float(value) if isinstance(value, float) else Decimal(value)),
        (TEXTS, "{}", lambda value: value),
        (SPANS, f"unix_micros({SOME_MOMENT} + ({{}}))", end_of),
    ]
    for texts, asked, ours in kinds:
        [answer] = java_spark.sql(f"SELECT {', '.join(asked.format(text) for text in texts)}").collect()
        for text, spark_value in zip(texts, answer, strict=True):
            call = parse_call(f"CALL p({text})", settings=berlin)
            assert call is not None
            assert ours(call.arguments[0].value) == spark_value, text


def test_what_spark_refuses_is_refused(java_spark: SparkSession) -> None:
    for text in REFUSED:
        with pytest.raises(Exception, match=r"."):
            java_spark.sql(f"SELECT {text}").collect()
        with pytest.raises(Exception, match="p: "):
            parse_call(f"CALL p({text})")
