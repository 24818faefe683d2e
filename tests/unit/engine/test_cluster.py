"""How much work the driver does by itself: the settings `driver_bytes` and `driver_files`."""

from __future__ import annotations

from dataclasses import replace

import pytest

from iceberg_compact_sql import events
from iceberg_compact_sql.engine.cluster import driver_bytes_setting, driver_files_setting
from iceberg_compact_sql.errors import InvalidArgumentError
from tests.support.calls import call
from tests.support.handmade import make_small_table
from tests.support.plain import PlainLake

NAME = "spark.iceberg_compact_sql.driver_bytes"
FILES_NAME = "spark.iceberg_compact_sql.driver_files"


@pytest.mark.parametrize(
    ("text", "expected_bytes"),
    [
        (None, None),
        ("0", 0),
        ("0MB", 0),
        ("1", 1),
        ("64MB", 64 * 1024**2),
        (" 1.5 GiB ", 1536 * 1024**2),
        ("536870912", 536870912),
    ],
)
def test_sizes_are_read_as_in_a_call(text: str | None, expected_bytes: int | None) -> None:
    assert driver_bytes_setting(NAME, text) == expected_bytes


@pytest.mark.parametrize("text", ["", "  ", "lots", "-1", "-64MB", "64 apples", "true", "NaN", "1e400", "64MB;"])
def test_a_bad_value_is_refused_before_anything_is_read(plain_lake: PlainLake, text: str) -> None:
    table = make_small_table(plain_lake.catalog)
    before = table.metadata_location
    lake = replace(plain_lake, conf={**plain_lake.conf, NAME: text})
    with pytest.raises(InvalidArgumentError) as caught:
        call(lake, "CALL compact_table('db.t', min_input_files => 2)")
    assert f"setting {NAME} is {text!r}, which " in str(caught.value)
    assert "such as '64MB'; 0 always uses Spark tasks" in str(caught.value)
    assert table.refresh().metadata_location == before


@pytest.mark.parametrize(
    ("text", "expected"), [(None, None), ("0", 0), (" 1 ", 1), ("+3000000", 3_000_000), ("9" * 18, 10**18 - 1)]
)
def test_counts_of_files(text: str | None, expected: int | None) -> None:
    assert driver_files_setting(FILES_NAME, text) == expected


@pytest.mark.parametrize("text", ["", "  ", "lots", "-1", "1.5", "1_000", "1e6", "3MB", "true", "\u0663", "9" * 19])
@pytest.mark.parametrize("dry_run", ["true", "false"])
def test_a_bad_count_is_refused_before_anything_is_listed(plain_lake: PlainLake, text: str, dry_run: str) -> None:
    make_small_table(plain_lake.catalog)
    points: list[str] = []
    lake = replace(plain_lake, conf={**plain_lake.conf, FILES_NAME: text})
    with events.listening(lambda point, facts: points.append(point)), pytest.raises(InvalidArgumentError) as caught:
        call(lake, f"CALL remove_orphans('db.t', dry_run => {dry_run})")
    assert f"setting {FILES_NAME} is {text!r}, which is " in str(caught.value)
    assert "such as 3000000; 0 always uses Spark tasks" in str(caught.value)
    assert "orphans.listed" not in points
