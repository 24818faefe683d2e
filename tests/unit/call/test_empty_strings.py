"""An empty name, path or filter is an error in every procedure, never the default."""

from __future__ import annotations

import pytest

from iceberg_compact_sql.call.declaration import Kind
from iceberg_compact_sql.errors import InvalidArgumentError
from iceberg_compact_sql.procedures.registry import procedures
from tests.support.calls import call
from tests.support.plain import PlainLake

TEXTS = [
    (procedure.name, parameter.name)
    for procedure in procedures().values()
    for parameter in procedure.parameters
    if parameter.kind is Kind.STRING
]


def test_the_list_has_the_arguments_that_name_places() -> None:
    assert {("remove_orphans", "location"), ("remove_orphans", "file_list_view"), ("compact_table", "where")} <= set(
        TEXTS
    )


@pytest.mark.parametrize("text", ["", "   "])
@pytest.mark.parametrize(("procedure", "argument"), TEXTS)
def test_an_empty_string_is_refused(plain_lake: PlainLake, procedure: str, argument: str, text: str) -> None:
    first = procedures()[procedure].parameters[0].name
    table = "" if argument == first else "'db.t', "
    with pytest.raises(
        InvalidArgumentError, match=f"^{procedure}: argument '{argument}': '{text}' is empty; give a value"
    ):
        call(plain_lake, f"CALL {procedure}({table}{argument} => '{text}')")
