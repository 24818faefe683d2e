"""A deprecated argument warns for two minor versions and is an error afterwards; help and flags say so."""

from __future__ import annotations

import dataclasses
import warnings

import pytest

from iceberg_compact_sql.call import declaration
from iceberg_compact_sql.call.binding import GivenArgument, bind
from iceberg_compact_sql.call.declaration import Arguments, Kind, Parameter, Procedure
from iceberg_compact_sql.call.grammar import parse_call
from iceberg_compact_sql.cli import procedure_command
from iceberg_compact_sql.errors import InvalidArgumentError
from iceberg_compact_sql.procedures.compact_table import PROCEDURE as COMPACT
from iceberg_compact_sql.procedures.help import argument_row
from iceberg_compact_sql.procedures.readme_tables import procedure_section

OLD = Parameter("goal", Kind.SIZE, "target size", option="goal-bytes", deprecated="since 0.3: use target")
PROCEDURE = dataclasses.replace(COMPACT, parameters=(*COMPACT.parameters, OLD))


def called(text: str, procedure: Procedure = PROCEDURE) -> Arguments:
    call = parse_call(text, now_ms=0)
    assert call is not None
    return bind(procedure, call.arguments, now_ms=0, time_zone=lambda: "UTC", called_as=call.procedure)


@pytest.fixture(params=["0.3.0", "0.4.7"])
def warning_version(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(declaration, "VERSION", request.param)


@pytest.fixture(params=["0.5.0", "0.10.0", "1.0.0"])
def later_version(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(declaration, "VERSION", request.param)


@pytest.mark.usefixtures("warning_version")
def test_it_warns_and_works() -> None:
    with pytest.warns(FutureWarning) as caught:
        arguments = called("CALL compact_table('db.t', goal => '1MB')")
    assert arguments["goal"] == 1024 * 1024
    assert [str(warning.message) for warning in caught] == [
        "compact_table: argument 'goal' is deprecated since 0.3: use target"
    ]
    with pytest.warns(FutureWarning, match="option 'goal-bytes' is deprecated since 0.3: use target"):
        assert called("CALL compact_table('db.t', options => map('goal-bytes', '5'))")["goal"] == 5


@pytest.mark.usefixtures("warning_version")
def test_a_call_without_it_does_not_warn() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert called("CALL compact_table('db.t', goal => NULL)")["goal"] is None
        assert called("CALL compact_table('db.t', target => '1MB')")["target"] == 1024 * 1024


@pytest.mark.usefixtures("later_version")
def test_later_it_is_an_error_that_names_the_new_one() -> None:
    with pytest.raises(InvalidArgumentError) as raised:
        called("CALL compact_table('db.t', goal => '1MB')")
    assert str(raised.value) == (
        "compact_table: argument 'goal' was removed in 0.5: use target (line 1, column 28). "
        "See CALL help('compact_table')."
    )
    with pytest.raises(InvalidArgumentError, match=r"option 'goal-bytes' was removed in 0.5: use target"):
        called("CALL compact_table('db.t', options => map('goal-bytes', '5'))")
    with pytest.raises(InvalidArgumentError, match="use target"):
        bind(PROCEDURE, [GivenArgument("db.t"), GivenArgument("1MB", "goal")], now_ms=0, time_zone=lambda: "UTC")
    assert called("CALL compact_table('db.t', goal => NULL)")["goal"] is None


@pytest.mark.usefixtures("warning_version")
def test_help_documents_and_flags_show_it() -> None:
    shown = "target size (deprecated since 0.3: use target)"
    assert shown in argument_row(PROCEDURE, OLD)
    assert shown in procedure_section(PROCEDURE)
    flag = next(p for p in procedure_command(PROCEDURE).params if p.name == "goal")
    assert shown in (getattr(flag, "help", None) or "")


@pytest.mark.parametrize("text", ["0.3: use target", "since 0.3", "since 0.3: target", "since three: use target"])
def test_the_form_is_checked_when_it_is_declared(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not of the form 'since 0.3: use target'"):
        Parameter("goal", Kind.SIZE, "target size", deprecated=text)
