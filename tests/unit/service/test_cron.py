"""Cron expressions and clocks, against known moments."""

from __future__ import annotations

import datetime as dt

import pytest

from iceberg_compact_sql.service.configuration.cron import check_cron, missed, next_after


def utc(text: str) -> int:
    return int(dt.datetime.fromisoformat(text).replace(tzinfo=dt.timezone.utc).timestamp() * 1000)


CASES = [
    ("30 2 * * *", "UTC", "2026-01-01T00:00", ["2026-01-01T02:30", "2026-01-02T02:30"]),
    ("*/10 * * * * *", "UTC", "2026-01-01T00:00:05", ["2026-01-01T00:00:10", "2026-01-01T00:00:20"]),
    ("0 0 * * 0", "UTC", "2026-01-01T00:00", ["2026-01-04T00:00"]),
    ("0 0 * * 7", "UTC", "2026-01-01T00:00", ["2026-01-04T00:00"]),
    ("0 0 * * sun", "UTC", "2026-01-01T00:00", ["2026-01-04T00:00"]),
    ("0 0 13 * fri", "UTC", "2026-01-01T00:00", ["2026-01-02T00:00", "2026-01-09T00:00", "2026-01-13T00:00"]),
    ("@daily", "UTC", "2026-01-01T00:00", ["2026-01-02T00:00"]),
    ("@hourly", "UTC", "2026-01-01T00:00", ["2026-01-01T01:00"]),
    ("0 0 31 2 *", "UTC", "2026-01-01T00:00", [None]),
    # Spring in Berlin: 02:30 does not exist on 29 March 2026 and fires at 03:00, which is 01:00 UTC.
    ("30 2 * * *", "Europe/Berlin", "2026-03-28T12:00", ["2026-03-29T01:00", "2026-03-30T00:30"]),
    # Autumn: 02:30 exists twice on 25 October 2026 and fires once.
    ("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00", ["2026-10-25T00:30", "2026-10-26T01:30"]),
    # Every hour goes on through both hours.
    (
        "30 * * * *",
        "Europe/Berlin",
        "2026-10-24T23:45",
        ["2026-10-25T00:30", "2026-10-25T01:30", "2026-10-25T02:30"],
    ),
    ("30 * * * *", "Europe/Berlin", "2026-03-29T00:15", ["2026-03-29T00:30", "2026-03-29T01:00", "2026-03-29T01:30"]),
]


@pytest.mark.parametrize(("cron", "zone", "start", "expected"), CASES)
def test_next_moments(cron: str, zone: str, start: str, expected: list[str | None]) -> None:
    at: int | None = utc(start)
    for moment in expected:
        assert at is not None
        at = next_after(check_cron(cron), zone, at)
        assert at == (None if moment is None else utc(moment))


@pytest.mark.parametrize("text", ["", "* * * *", "61 * * * *", "* * * * * * *", "@never", "a b c d e"])
def test_wrong_expressions_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a cron expression"):
        check_cron(text)


def test_missed_runs_are_counted() -> None:
    count, last = missed("0 * * * *", "UTC", utc("2026-01-01T00:00"), utc("2026-01-01T05:30"))
    assert (count, last) == (5, utc("2026-01-01T05:00"))
