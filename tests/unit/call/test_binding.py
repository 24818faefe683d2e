"""Arguments as users write them: types, bounds, names, options, and exact messages."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import numpy as np
import pytest

from iceberg_compact_sql.call.binding import GivenArgument, bind
from iceberg_compact_sql.call.declaration import Arguments, Procedure
from iceberg_compact_sql.call.grammar import parse_call
from iceberg_compact_sql.errors import InvalidArgumentError
from iceberg_compact_sql.procedures.compact_table import PROCEDURE as COMPACT
from iceberg_compact_sql.procedures.registry import procedures
from iceberg_compact_sql.units import Months, parse_duration_ms, parse_size, parse_time_ms, plain_python

MB = 1024 * 1024


def bound(*args: object, called_as: str | None = None, **kwargs: object) -> Arguments:
    given = [GivenArgument(value) for value in args] + [GivenArgument(value, name) for name, value in kwargs.items()]
    return bind(COMPACT, given, now_ms=0, time_zone=lambda: "UTC", called_as=called_as)


def test_every_parameter_is_there_and_null_means_the_default() -> None:
    arguments = bound("db.t", None, min_input_files=None)
    assert set(arguments) == {p.name for p in COMPACT.parameters}
    assert arguments["min_input_files"] == 5
    assert arguments.given == {"table"}


def test_values_are_typed() -> None:
    arguments = bound("db.t", "512MB", DRY_RUN=True, idle="1h", max_cost="1.5", job_order="BYTES-ASC")
    assert arguments["target"] == 512 * MB
    assert arguments["dry_run"] is True
    assert arguments["idle"] == 3_600_000
    assert arguments["max_cost"] == 1.5
    assert arguments["job_order"] == "bytes-asc"


def test_icebergs_options_become_arguments() -> None:
    arguments = bound(
        "db.t", options={"min-input-files": "2", "write.parquet.page-size-bytes": "1", "rewrite-all": True}
    )
    assert arguments["min_input_files"] == 2
    assert arguments["rewrite_all"] is True
    assert arguments["options"] == {"write.parquet.page-size-bytes": "1"}


def test_icebergs_name_takes_icebergs_positions() -> None:
    arguments = bound("db.t", "binpack", None, {"min-input-files": "2"}, "a > 1", called_as="rewrite_data_files")
    assert arguments["where"] == "a > 1"
    assert arguments["min_input_files"] == 2


def test_calendar_intervals_are_ages_on_the_sessions_clock() -> None:
    now_ms = parse_time_ms("2026-03-31T01:00:00", now_ms=0, time_zone="Europe/Paris")
    ago = parse_time_ms(Months(1), now_ms=now_ms, time_zone="Europe/Paris")
    assert ago == parse_time_ms("2026-02-28T01:00:00", now_ms=0, time_zone="Europe/Paris")


ERRORS = [
    (lambda: bound("t", idle=Months(1)), "compact_table: argument 'idle': INTERVAL 1 MONTHS has no fixed length"),
    (lambda: bound("t", targt="1"), "compact_table: unknown argument 'targt'. Did you mean 'target'?"),
    (lambda: bound("t", xyz="1"), "compact_table: unknown argument 'xyz'. See CALL help('compact_table')."),
    (lambda: bound("t", "5MB", target="1"), "compact_table: argument 'target' is given twice. Give it once."),
    (lambda: bound(), "compact_table: argument 'table' is missing. Give it first: CALL compact_table('db.events')."),
    (lambda: bound(5), "compact_table: argument 'table': 5 is not a string"),
    (lambda: bound("t", "5 parrots"), "compact_table: argument 'target': '5 parrots' is not a size such as '512MB'"),
    (lambda: bound("t", 0), "compact_table: argument 'target': 0 must be at least 1 B"),
    (lambda: bound("t", min_input_files=0), "compact_table: argument 'min_input_files': 0 must be at least 1"),
    (lambda: bound("t", min_input_files=2**31), "compact_table: argument 'min_input_files': 2147483648 is beyond"),
    (lambda: bound("t", min_input_files=1.5), "compact_table: argument 'min_input_files': 1.5 is not a whole number"),
    (
        lambda: bound("t", delete_ratio_threshold=0),
        "compact_table: argument 'delete_ratio_threshold': 0 must be above 0",
    ),
    (
        lambda: bound("t", min_fragment_ratio=-0.1),
        "compact_table: argument 'min_fragment_ratio': -0.1 must be at least",
    ),
    (lambda: bound("t", min_fragment_ratio="x"), "compact_table: argument 'min_fragment_ratio': 'x' is not a number"),
    (lambda: bound("t", min_score="nan"), "compact_table: argument 'min_score': 'nan' is not a finite number"),
    (lambda: bound("t", min_score=10**400), "compact_table: argument 'min_score': 1000"),
    (lambda: bound("t", target=Decimal("Infinity")), "compact_table: argument 'target': Infinity is not a size"),
    (lambda: bound("t", target=10**5000), "compact_table: argument 'target': a value too long to show does not fit"),
    (
        lambda: bound("t", options=[10**5000]),
        "compact_table: argument 'options': a value too long to show is not a map",
    ),
    (lambda: bound("t", copy="maybe"), "compact_table: argument 'copy': 'maybe' is not one of auto, never"),
    (lambda: bound("t", dry_run="yes"), "compact_table: argument 'dry_run': 'yes' is not true or false"),
    (lambda: bound("t", options="x"), "compact_table: argument 'options': 'x' is not a map"),
    (
        lambda: bound("t", options={"min-input-file": "2"}),
        "compact_table: unknown option 'min-input-file'. Did you mean",
    ),
    (
        lambda: bound("t", options={"min-input-files": "x"}),
        "compact_table: argument 'options['min-input-files']': 'x' is",
    ),
    (
        lambda: bound("t", min_input_files=2, options={"min-input-files": "2"}),
        "compact_table: option 'min-input-files' and argument 'min_input_files' are both given. Give one of them.",
    ),
    (
        lambda: bound("t", None, None, None, None, None, None, called_as="rewrite_data_files"),
        "rewrite_data_files: 7 arguments given, but it takes at most 6",
    ),
]


@pytest.mark.parametrize(("call", "message"), ERRORS)
def test_errors_name_argument_value_and_rule(call: object, message: str) -> None:
    with pytest.raises(InvalidArgumentError) as raised:
        call()  # type: ignore[operator]
    assert str(raised.value).startswith(message)


SIZES = [
    ("512MB", 512 * MB),
    ("1g", 1024 * MB),
    ("1.5 GiB", 1536 * MB),
    ("10", 10),
    (536870912, 536870912),
    ("0", 0),
    (1e9, 10**9),
]


@pytest.mark.parametrize(("text", "size"), SIZES)
def test_sizes(text: object, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "text",
    [
        "",
        "MB",
        "-1MB",
        "1 XB",
        "1e3",
        True,
        None,
        1.5,
        float("nan"),
        Decimal("NaN"),
        Decimal("-Infinity"),
        "9" * 30 + "GB",
        "1 MB MB",
    ],
)
def test_bad_sizes(text: object) -> None:
    with pytest.raises(ValueError):
        parse_size(text)


DURATIONS = [("7d", 604_800_000), ("168h", 604_800_000), ("30 minutes", 1_800_000), ("1 day 2 hours", 93_600_000)]


@pytest.mark.parametrize(("text", "milliseconds"), DURATIONS)
def test_durations(text: str, milliseconds: int) -> None:
    assert parse_duration_ms(text) == milliseconds


TIMES = [
    ("7d", -604_800_000),
    (dt.timedelta(days=7), -604_800_000),
    ("1970-01-02", 82_800_000),
    ("1970-01-02 00:00:00", 82_800_000),
    ("1970-01-02T00:00:00Z", 86_400_000),
    ("1970-01-02 00:00:00 UTC", 86_400_000),
    (dt.date(1970, 1, 2), 82_800_000),
    (dt.datetime(1970, 1, 2, tzinfo=dt.timezone.utc), 86_400_000),
]


@pytest.mark.parametrize(("value", "milliseconds"), TIMES)
def test_times_are_in_the_sessions_zone(value: object, milliseconds: int) -> None:
    assert parse_time_ms(value, now_ms=0, time_zone="Europe/Berlin") == milliseconds


@pytest.mark.parametrize("value", ["soon", "2026-13-01", "", 5, None, "25:00"])
def test_bad_times(value: object) -> None:
    with pytest.raises(ValueError):
        parse_time_ms(value, now_ms=0, time_zone="UTC")


def test_declarations_are_complete() -> None:
    for procedure in procedures().values():
        parameters = [p.name for p in procedure.parameters]
        assert len(set(parameters)) == len(parameters)
        assert procedure.summary.endswith(".")
        assert procedure.example.startswith(f"CALL {procedure.name}(")
        assert all(p.meaning and not p.meaning.endswith(".") for p in procedure.parameters)
        if procedure.iceberg is not None:
            assert set(procedure.iceberg.positions) <= set(parameters)
            assert procedure.iceberg.column_count <= len(procedure.columns)


ODD_VALUES = [
    -1, 0, 2**63, 10**400, 10**5000, True, "", " ", "x", "\0", "9" * 5000, "9" * 5000 + "MB", 1.5, float("nan"),
    float("inf"), Decimal("sNaN"), Decimal("Infinity"), Decimal("1e400"), b"x", object(), {}, {1: 2}, {"a": None},
    {"min-input-files": 10**5000}, [None], [[1]], [10**5000], {"x"}, dt.date.min, dt.date.max, dt.datetime.min,
    dt.datetime.max, dt.timedelta(-1), dt.timedelta.max, dt.time(1), "0001-01-01", "9999-12-31 23:59:59", "7x",
]  # fmt: skip


@pytest.mark.parametrize("procedure", procedures().values(), ids=procedures())
def test_every_value_for_every_parameter_is_bound_or_refused_by_name(procedure: Procedure) -> None:
    for parameter in procedure.parameters:
        for value in ODD_VALUES:
            given = [GivenArgument(plain_python(value), parameter.name)]
            if parameter.name != "table" and procedure.parameter("table"):
                given.append(GivenArgument("db.t", "table"))
            try:
                bind(procedure, given, now_ms=0, time_zone=lambda: "Europe/Berlin")
            except InvalidArgumentError as error:
                assert str(error).startswith(f"{procedure.name}: ")


def test_values_of_numpy_are_pythons() -> None:
    when = np.datetime64("2026-01-01T00:00:00", "ns")
    given = {"min_input_files": np.int64(2), "min_score": np.float32(0.5), "rewrite_all": np.bool_(True)}
    arguments = bound("t", **{name: plain_python(value) for name, value in given.items()})
    assert (arguments["min_input_files"], arguments["min_score"], arguments["rewrite_all"]) == (2, 0.5, True)
    assert plain_python(when) == dt.datetime(2026, 1, 1).astimezone()
    assert plain_python(np.array([1, 2])) == [1, 2]
    call = parse_call("CALL p(:a, :b)", args={"a": np.int64(3), "b": [np.int32(1)]})
    assert call is not None and [given.value for given in call.arguments] == [3, [1]]


@pytest.mark.parametrize("text", ["6M", "6 M", "1d 6M", "interval 6 M"])
def test_a_capital_m_alone_is_refused(text: str) -> None:
    for parse in (parse_duration_ms, lambda value: parse_time_ms(value, now_ms=0, time_zone="UTC")):
        with pytest.raises(ValueError, match="'6 months' or '6 minutes'"):
            parse(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1 month", "2026-02-28T01:00:00"),
        ("P1M", "2026-02-28T01:00:00"),
        ("1 year", "2025-03-31T01:00:00"),
        ("1 year 2 months", "2025-01-31T01:00:00"),
        ("P1Y2M", "2025-01-31T01:00:00"),
        ("1 month 1 hour", "2026-02-28T00:00:00"),
        ("P1MT60M", "2026-02-28T00:00:00"),
        ("90 m", "2026-03-30T23:30:00"),
        ("PT90M", "2026-03-30T23:30:00"),
    ],
)
def test_months_are_counted_by_the_calendar_of_the_session(text: str, expected: str) -> None:
    zone = "Europe/Paris"
    now_ms = parse_time_ms("2026-03-31T01:00:00", now_ms=0, time_zone=zone)
    assert parse_time_ms(text, now_ms=now_ms, time_zone=zone) == parse_time_ms(expected, now_ms=0, time_zone=zone)


@pytest.mark.parametrize("value", ["6 months", "1 year", "P6M", "1 day 1 month", Months(6)])
def test_a_duration_in_months_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="has no fixed length"):
        parse_duration_ms(value)


@pytest.mark.parametrize("value", ["1.5 months", "99999 years"])
def test_months_that_no_calendar_has_are_refused(value: str) -> None:
    with pytest.raises(ValueError, match=r"whole number of months|first year"):
        parse_time_ms(value, now_ms=0, time_zone="UTC")
