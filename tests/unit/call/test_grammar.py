"""CALL text and what it means: pairs, exact errors, and properties."""

from __future__ import annotations

import datetime as dt
import time
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iceberg_compact_sql.call.binding import GivenArgument
from iceberg_compact_sql.call.detect import called_name
from iceberg_compact_sql.call.grammar import Call, parse_call
from iceberg_compact_sql.errors import CallSyntaxError
from tests.support.call_text import print_call

NOW_MS = 1_767_225_600_000  # 2026-01-01 00:00:00 UTC
UTC = dt.timezone.utc

VALUES = [
    ("'db.t'", "db.t"),
    ("'it''s'", "it's"),
    ("\"it''s\"", "it''s"),
    ('"a""b"', 'a"b'),
    (r"'a\nb\t\\'", "a\nb\t\\"),
    (r"'\u0041'", "A"),
    (r"'\ud83d\ude00'", "\U0001f600"),
    (r"r'a\n'", r"a\n"),
    ("'a' 'b'", "ab"),
    ("'a' || 'b'", "ab"),
    ("5", 5),
    ("-5", -5),
    ("5L", 5),
    ("1.5", Decimal("1.5")),
    ("1e3", 1000.0),
    ("TRUE", True),
    ("null", None),
    ("512 * 1024 * 1024", 512 * 1024 * 1024),
    ("(1 + 2) * 3 - 4", 5),
    ("7 DIV 2", 3),
    ("7 % 4", 3),
    ("-7 DIV 2", -3),
    ("-7 % 4", -3),
    ("DATE '2026-01-31'", dt.date(2026, 1, 31)),
    ("DATE '2026-01-31' - 1", dt.date(2026, 1, 30)),
    ("date_sub(DATE '2026-01-31', 30)", dt.date(2026, 1, 1)),
    ("TIMESTAMP '2026-01-31 12:00:00'", dt.datetime(2026, 1, 31, 12, tzinfo=UTC)),
    ("TIMESTAMP '2026-01-31T12:00:00+02:00'", dt.datetime(2026, 1, 31, 10, tzinfo=UTC)),
    ("CAST('2026-01-31' AS DATE)", dt.date(2026, 1, 31)),
    ("current_timestamp()", dt.datetime(2026, 1, 1, tzinfo=UTC)),
    ("current_timestamp", dt.datetime(2026, 1, 1, tzinfo=UTC)),
    ("now() - INTERVAL 1 DAY", dt.datetime(2025, 12, 31, tzinfo=UTC)),
    ("current_timestamp() - INTERVAL 7 DAYS", dt.datetime(2025, 12, 25, tzinfo=UTC)),
    ("current_timestamp() - INTERVAL '1' MONTH", dt.datetime(2025, 12, 1, tzinfo=UTC)),
    ("DATE '2024-03-31' - INTERVAL 1 MONTH", dt.date(2024, 2, 29)),
    ("INTERVAL 7 DAYS", dt.timedelta(days=7)),
    ("INTERVAL '7' DAY", dt.timedelta(days=7)),
    ("INTERVAL '1 02:03:04' DAY TO SECOND", dt.timedelta(days=1, hours=2, minutes=3, seconds=4)),
    ("INTERVAL 1 DAY 2 HOURS", dt.timedelta(days=1, hours=2)),
    ("INTERVAL '1 day 2 hours'", dt.timedelta(days=1, hours=2)),
    ("INTERVAL '03:04.5' MINUTE TO SECOND", dt.timedelta(minutes=3, seconds=4.5)),
    ("INTERVAL '-02:03' HOUR TO MINUTE", dt.timedelta(hours=-2, minutes=-3)),
    ("DATE '2026-03-31' - INTERVAL '1-1' YEAR TO MONTH", dt.date(2025, 2, 28)),
    ("array(1, 2)", [1, 2]),
    ("map('a', 'b', 'c', 1)", {"a": "b", "c": 1}),
    ("map()", {}),
]


@pytest.mark.parametrize(("text", "value"), VALUES)
def test_values(text: str, value: object) -> None:
    call = parse_call(f"CALL p({text}, named => {text})", now_ms=NOW_MS)
    assert call is not None
    assert [(a.name, a.value) for a in call.arguments] == [(None, value), ("named", value)]
    assert type(call.arguments[0].value) is type(value)


ERRORS = [
    ("CALL p('t', target = '5')", "p: named arguments are written target => value, not target = value", 1, 20),
    ("CALL p('t', target => )", "p: expected a value for argument target", 1, 23),
    ("CALL p('t' 5)", "p: expected , or )", 1, 12),
    ("CALL p('t')) x", "p: unexpected text after the closing )", 1, 12),
    ("CALL p", "p: expected ( after the procedure's name", 1, 7),
    ("CALL p('t", "p: a quote or a comment is not closed", 1, 10),
    ("CALL p(a => 1, 2)", "p: argument 2 stands after a named argument", 1, 16),
    ("CALL p(\n  'a',\n  b => 1 2)", "p: expected , or )", 3, 10),
    ("CALL p(1/0)", "p: argument 1: cannot calculate 1 / 0: division by zero", 1, 8),
    ("CALL p(x => INTERVAL 7 PARSEC)", "p: argument x: INTERVAL unit PARSEC is not known", 1, 8),
    ("CALL p(current_user())", "p: argument 1: ", 1, 8),
    ("CALL p(:a)", "p: argument 1: marker :a has no value", 1, 8),
    ("CALL p(?)", "p: argument 1: marker ? has no value", 1, 8),
    ("CALL p(1); SELECT 2", "p: unexpected ; : one statement at a time", 1, 10),
    ("CALL p(cast('a' as int))", "p: argument 1: 'a' is not a whole number", 1, 8),
    ("CALL p(map('a'))", "p: a value that cannot be read", 1, 8),
    ("CALL p(map(array(1), 2))", "p: argument 1: map(...) takes strings and numbers as keys", 1, 8),
    (r"CALL p('\ud800')", "p: string ", 1, 8),
    ("CALL p('a' * 3)", "p: argument 1: cannot calculate 'a' * 3: the types do not fit", 1, 8),
    ("CALL p(array(1) + array(2))", "p: argument 1: cannot calculate ", 1, 8),
    ("CALL p(INTERVAL '25:99' MINUTE TO HOUR)", "p: argument 1: INTERVAL '25:99' MINUTE TO HOUR cannot be read", 1, 8),
    ("CALL p(INTERVAL '7 parsecs 1 hour')", "p: argument 1: INTERVAL '7 parsecs 1 hour' is not a duration", 1, 8),
    ("CALL p(db.events)", "p: argument 1: db.events is a name, not a value; put it in quotes: 'db.events'", 1, 8),
    ("CALL p(x => `db`.`events`)", "p: argument x: db.events is a name, not a value; put it in quotes", 1, 8),
    ("CALL p('t', target := '5')", "p: named arguments are written target => value, not target := value", 1, 20),
    ("CALL p('t', target -> '5')", "p: named arguments are written target => value, not target -> value", 1, 20),
]


@pytest.mark.parametrize(("text", "message", "line", "column"), ERRORS)
def test_errors_say_what_and_where(text: str, message: str, line: int, column: int) -> None:
    with pytest.raises(CallSyntaxError) as raised:
        parse_call(text, now_ms=NOW_MS)
    assert str(raised.value).startswith(message)
    assert (raised.value.line, raised.value.column) == (line, column)
    shown, caret = raised.value.excerpt.split("\n")
    assert caret.index("^") == column - 1
    assert shown == text.split("\n")[line - 1]


NAMES = [
    ("CALL p()", ("p",)),
    ("  call P ( ) ", ("P",)),
    ("-- nightly\nCALL system.p()", ("system", "p")),
    ("/* a /* nested */ comment */ CALL `my cat`.system.`p`()", ("my cat", "system", "p")),
    ("CALL /* here */ a . b(1)", ("a", "b")),
    ("CALL `a``b`()", ("a`b",)),
    ("SELECT 1", None),
    ("CALLER p()", None),
    ("", None),
    ("/* open", None),
    ("CALL", None),
    ("CALL 'x'", None),
    ("EXPLAIN CALL p()", None),
]


@pytest.mark.parametrize(("text", "parts"), NAMES)
def test_the_first_words_tell_a_call(text: str, parts: tuple[str, ...] | None) -> None:
    name = called_name(text)
    assert (name and name.parts) == parts


def test_shapes_that_people_write() -> None:
    text = """
    -- dbt adds a comment
    call `lake`.system.compact_table(
        table => 'db.events', -- which
        `target` => '512MB' /* how large */
    ) ; ; -- done
    """
    call = parse_call(text)
    assert call is not None
    assert call.procedure == "compact_table"
    assert call.catalog == "lake"
    assert [(a.name, a.value) for a in call.arguments] == [("table", "db.events"), ("target", "512MB")]


def test_markers_take_values_from_args() -> None:
    named = parse_call("CALL p(:a, x => :b)", args={"a": "t", "b": [1, 2]})
    assert named is not None and [a.value for a in named.arguments] == ["t", [1, 2]]
    positional = parse_call("CALL p(?, x => ?)", args=["t", dt.date(2026, 1, 1)])
    assert positional is not None and [a.value for a in positional.arguments] == ["t", dt.date(2026, 1, 1)]
    with pytest.raises(CallSyntaxError, match="of type object is not supported"):
        parse_call("CALL p(?)", args=[object()])


def test_time_literals_are_in_the_sessions_zone() -> None:
    call = parse_call("CALL p(TIMESTAMP '2026-01-31 12:00:00')", time_zone="Europe/Berlin")
    assert call is not None
    assert call.arguments[0].value == dt.datetime(2026, 1, 31, 11, tzinfo=UTC)


SHIFTED = [
    ("TIMESTAMP '2026-03-29 12:00:00' - INTERVAL 12 HOURS", dt.datetime(2026, 3, 28, 22, tzinfo=UTC)),
    ("TIMESTAMP '2026-03-29 12:00:00' - INTERVAL 1 DAY", dt.datetime(2026, 3, 28, 11, tzinfo=UTC)),
    ("INTERVAL 12 HOURS + TIMESTAMP '2026-03-29 00:00:00'", dt.datetime(2026, 3, 29, 11, tzinfo=UTC)),
    ("TIMESTAMP '2026-03-29 12:00:00' - INTERVAL 1 DAY 12 HOURS", dt.datetime(2026, 3, 27, 23, tzinfo=UTC)),
    ("DATE '2026-03-30' - INTERVAL 24 HOURS", dt.date(2026, 3, 29)),
    ("DATE '2026-03-30' - INTERVAL 36 HOURS", dt.datetime(2026, 3, 28, 11, tzinfo=UTC)),
    ("now() - INTERVAL 7 DAYS", dt.datetime(2026, 3, 23, 13, tzinfo=UTC)),
    ("now() - INTERVAL 1 MONTH", dt.datetime(2026, 2, 28, 13, tzinfo=UTC)),
]


@pytest.mark.parametrize(("text", "value"), SHIFTED)
def test_days_and_months_are_of_the_sessions_calendar_and_hours_of_the_clock(text: str, value: object) -> None:
    now_ms = int(dt.datetime(2026, 3, 30, 12, tzinfo=UTC).timestamp() * 1000)
    call = parse_call(f"CALL p({text})", now_ms=now_ms, time_zone="Europe/Berlin")
    assert call is not None
    assert call.arguments[0].value == value


@pytest.mark.parametrize(("zone", "hours"), [("PST", 8), ("EST", 5), ("JST", -9), ("+02:00", -2), ("GMT+2", -2)])
def test_every_zone_that_spark_takes_is_a_zone(zone: str, hours: int) -> None:
    call = parse_call("CALL p(TIMESTAMP '2026-01-31 12:00:00')", time_zone=zone)
    assert call is not None
    assert call.arguments[0].value == dt.datetime(2026, 1, 31, 12, tzinfo=UTC) + dt.timedelta(hours=hours)


def test_a_moment_of_a_marker_without_zone_is_on_the_clock_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        call = parse_call("CALL p(?)", args=[dt.datetime(2026, 1, 31, 12)], time_zone="UTC")
    finally:
        monkeypatch.undo()
        time.tzset()
    assert call is not None
    assert call.arguments[0].value == dt.datetime(2026, 1, 31, 3, tzinfo=UTC)


scalars = (
    st.text()
    | st.integers(-(2**70), 2**70)
    | st.booleans()
    | st.none()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.decimals(allow_nan=False, allow_infinity=False, places=3, min_value=-(10**12), max_value=10**12)
    | st.dates()
    | st.datetimes(timezones=st.just(UTC), min_value=dt.datetime(1000, 1, 1))
    | st.timedeltas(min_value=dt.timedelta(days=-99999), max_value=dt.timedelta(days=99999))
)
values = scalars | st.lists(scalars, max_size=3) | st.dictionaries(st.text(), scalars, max_size=3)
identifiers = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=8)


@given(
    parts=st.lists(identifiers, min_size=1, max_size=3),
    positional=st.lists(values, max_size=3),
    named=st.dictionaries(identifiers, values, max_size=3),
)
def test_what_the_printer_prints_parses_back(
    parts: list[str], positional: list[object], named: dict[str, object]
) -> None:
    arguments = [GivenArgument(value) for value in positional] + [
        GivenArgument(value, name) for name, value in named.items()
    ]
    call = Call(tuple(parts), tuple(arguments))
    parsed = parse_call(print_call(call))
    assert parsed is not None
    assert parsed.parts == call.parts
    assert [(a.name, a.value) for a in parsed.arguments] == [(a.name, a.value) for a in call.arguments]


pieces = st.sampled_from(
    ["CALL ", "p", "(", ")", "'", '"', "`", "=>", "=", ",", "--", "/*", "*/", "\n", ";", "INTERVAL", "1", "-", "DATE ",
     "map(", "array(", ":x", "?", "\\", "NULL", " ", "*", "cast(", " as int)", "{", "}", "$$", "select ", "case when "]
)  # fmt: skip


@given(st.text() | st.lists(pieces, max_size=20).map("".join).map(lambda tail: f"CALL p({tail}"))
def test_random_text_is_read_refused_or_not_ours(text: str) -> None:
    try:
        call = parse_call(text)
    except CallSyntaxError:
        return
    assert call is None or call.parts


def test_a_comment_goes_on_after_a_backslash_as_in_spark() -> None:
    assert parse_call("-- not yet \\\nCALL p('t')") is None
    assert parse_call("-- done \\ \nCALL p('t')") is not None
    call = parse_call("CALL p('a', -- one \\\n'b',\n'c--\\\nd', /* -- */ x => 1 -- 'e' \\\n)\n)")
    assert call is not None
    assert [(given.name, given.value) for given in call.arguments] == [(None, "a"), (None, "c--\nd"), ("x", 1)]
    assert (call.arguments[1].line, call.arguments[1].column) == (3, 1)
