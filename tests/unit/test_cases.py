"""CALL text with its rows or its exact error, from tests/cases/*.sql."""

from __future__ import annotations

import pytest

from iceberg_compact_sql.errors import IcebergCompactError
from tests.support.calls import call
from tests.support.cases import Case, read_cases
from tests.support.handmade import make_small_table
from tests.support.oracle import rows
from tests.support.plain import PlainLake


@pytest.mark.parametrize("case", read_cases("errors.sql"), ids=lambda case: case.sql)
def test_errors(plain_lake: PlainLake, case: Case) -> None:
    table = make_small_table(plain_lake.catalog)
    before = table.metadata_location
    with pytest.raises(IcebergCompactError) as raised:
        call(plain_lake, case.sql)
    assert " ".join(str(raised.value).replace(str(plain_lake.folder), "<lake>").split()) == case.error
    assert plain_lake.load("db.t").metadata_location == before


@pytest.mark.parametrize("case", read_cases("results.sql"), ids=lambda case: case.sql)
def test_results(plain_lake: PlainLake, case: Case) -> None:
    table = make_small_table(plain_lake.catalog)
    before = rows(table)
    answer = call(plain_lake, case.sql)
    assert len(answer) == len(case.rows)
    for row, expected in zip(answer, case.rows, strict=True):
        assert {name: row[name] for name in expected} == expected
    assert rows(table.refresh()) == before
