"""Reads the scans of a table from Spark event logs on any store. No literal of a query leaves this process."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

from pyiceberg.table import Table

from iceberg_compact_sql.errors import InvalidArgumentError, NotFoundError
from iceberg_compact_sql.events import stop_if_cancelled
from iceberg_compact_sql.plan.queries.candidates import Asked, Workload
from iceberg_compact_sql.plan.queries.filters import All, FilterParser, shape
from iceberg_compact_sql.plan.queries.scans import LogFacts, Scan, read_events, read_scans
from iceberg_compact_sql.storage.event_logs import UnreadableLogError, find_logs, open_log
from iceberg_compact_sql.storage.stores import Stores, stores_of

# Versions whose logs the tests read; the text of a scan differs between versions.
TESTED_VERSIONS = ("4.1",)
_DAY_MS = 86_400_000
_MOST_NAMES = 5


@dataclass
class QueryLog:
    """The scans of one table, and what was left out of the logs."""

    workload: Workload
    scans: int = 0
    reads: int = 0
    writes: int = 0
    not_understood: int = 0
    runtime_filters: int = 0
    logs: int = 0
    skipped_logs: int = 0
    other_versions: set[str] = field(default_factory=set)
    # Columns and kinds of filters with the bytes that they read: no literals.
    bytes_by_shape: dict[str, int] = field(default_factory=dict)


def read_query_log(table: Table, identifier: tuple[str, ...], location: str) -> QueryLog:
    """Read every log at a location, a file or a folder; raises when it holds no scan of the table."""
    stores = stores_of(table.io)
    place = location if ":" in location.split("/")[0] else str(Path(location).expanduser().absolute())
    try:
        logs = find_logs(stores, place)
    except FileNotFoundError:
        logs = []
    except OSError as error:
        raise _bad(location, f"cannot be listed ({type(error).__name__})", "Give a folder that exists.") from None
    if not logs:
        raise _bad(location, "holds no Spark event log", "Give the folder of spark.eventLog.dir, or one log file.")
    columns = {name for schema in table.metadata.schemas for name in schema.column_names}
    read = _Reader(FilterParser(columns))
    tables: set[str] = set()
    reasons: list[str] = []
    for parts in logs:
        stop_if_cancelled()
        facts = LogFacts()
        try:
            scans = list(read_scans(_events(stores, parts), ".".join(identifier), facts))
        except UnreadableLogError as error:
            reasons.append(str(error))
            continue
        except OSError as error:
            reasons.append(f"it cannot be read ({type(error).__name__})")
            continue
        if not facts.events:
            reasons.append("it has no event")
            continue
        tables |= facts.tables
        version = ".".join((facts.version or "unknown").split(".")[:2])
        if version not in TESTED_VERSIONS:
            read.log.other_versions.add(version)
            continue
        read.log.logs += 1
        for scan in scans:
            read.add(scan)
    read.log.skipped_logs = len(reasons)
    _refuse_nothing(read.log, location, identifier, tables, reasons)
    return read.finish()


def _events(stores: Stores, parts: list[str]) -> Iterator[dict[str, Any]]:
    def events_of(path: str) -> Iterator[dict[str, Any]]:
        with open_log(stores, path) as stream:
            yield from read_events(stream)

    return chain.from_iterable(events_of(path) for path in parts)


def _refuse_nothing(
    log: QueryLog, location: str, identifier: tuple[str, ...], tables: set[str], reasons: list[str]
) -> None:
    if log.scans:
        return
    if log.other_versions and not log.logs:
        versions = ", ".join(sorted(log.other_versions))
        tested = ", ".join(TESTED_VERSIONS)
        message = f"has only logs of Spark {versions}, whose text was not tested"
        raise _bad(location, message, f"Logs of these versions are read: {tested}.")
    if not log.logs:
        raise _bad(
            location, f"holds no readable Spark event log: {reasons[0]}", "Give the folder of spark.eventLog.dir."
        )
    names = sorted(tables)[:_MOST_NAMES]
    hint = f"The logs scan: {', '.join(names)}." if names else "The logs scan no Iceberg table."
    raise NotFoundError(
        f"no query in {location!r} reads {'.'.join(identifier)}", argument="queries", value=location, hint=hint
    )


def _bad(location: str, what: str, hint: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"queries {location!r} {what}", argument="queries", value=location, hint=hint)


class _Reader:
    """Collects scans into a workload: equal filters are one entry."""

    def __init__(self, parser: FilterParser) -> None:
        self._parser = parser
        self.log = QueryLog(Workload(asked=()))
        self._asked: dict[str, Asked] = {}
        self._times: list[int] = []
        self._cpu_ns = 0
        self._bytes = 0

    def add(self, scan: Scan) -> None:
        log = self.log
        log.scans += 1
        log.writes += scan.write
        log.reads += not scan.write
        log.runtime_filters += scan.runtime_filter
        self._times.append(scan.time_ms)
        self._cpu_ns += scan.cpu_ns
        self._bytes += scan.bytes or 0
        try:
            parsed = self._parser.parse(scan.filters)
            name = ", ".join(f"{column} ({kind})" for column, kind in shape(parsed)) or "no filter"
        except (ValueError, RecursionError):
            log.not_understood += 1
            parsed, name = All(), "not understood"
        log.bytes_by_shape[name] = log.bytes_by_shape.get(name, 0) + (scan.bytes or 0)
        before = self._asked.get(scan.filters)
        self._asked[scan.filters] = Asked(
            parsed,
            1 + (before.scans if before else 0),
            (scan.bytes or 0) + (before.bytes if before else 0),
            _sum(scan.kept, before.kept if before else None),
            _sum(scan.rows, before.rows if before else None),
        )

    def finish(self) -> QueryLog:
        span = max(self._times) - min(self._times)
        self.log.workload = Workload(
            asked=tuple(self._asked.values()),
            days=max(1.0, span / _DAY_MS),
            cpu_seconds=self._cpu_ns / 1e9,
            read_bytes=self._bytes,
        )
        return self.log


def _sum(left: int | None, right: int | None) -> int | None:
    return right if left is None else left if right is None else left + right
