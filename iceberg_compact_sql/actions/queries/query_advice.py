"""Advice from the queries that people ran: which layout would save most of what they read, and at what price."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyiceberg.table import Table
from pyiceberg.types import (
    BooleanType,
    DateType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
    TimestamptzType,
)

from iceberg_compact_sql.actions.queries.query_log import QueryLog, read_query_log
from iceberg_compact_sql.actions.queries.sample_rows import bounded_rows, sampled_rows
from iceberg_compact_sql.plan.advice.model import Finding, Severity, TableFacts, quoted, share_text, sql_text
from iceberg_compact_sql.plan.queries.candidates import Layout, Outcome, TableSize, evaluate, layouts, ranked
from iceberg_compact_sql.plan.queries.simulate import Sample, bounds_of_files, meets
from iceberg_compact_sql.rewrite.clustering.curves import hilbert
from iceberg_compact_sql.units import format_bytes

_ORDERED_TYPES = (
    IntegerType,
    LongType,
    FloatType,
    DoubleType,
    StringType,
    DateType,
    TimestampType,
    TimestamptzType,
    BooleanType,
)
_TIME_TYPES = (DateType, TimestampType, TimestamptzType)
_DAY_MS = 86_400_000
_DAY_MICROS = 86_400_000_000
# Below this share of bytes saved, the table is better left alone.
_LEAST_SAVED = 0.2
_THIN_SCANS = 20
_MOST_ROWS_SHOWN = 12


@dataclass(frozen=True)
class QueryAdvice:
    """The log, the share that a scan reads today, and the candidates, best first."""

    log: QueryLog
    share_today: float
    outcomes: Sequence[Outcome]
    sampled: bool


def advise_from_queries(
    table: Table, identifier: tuple[str, ...], facts: TableFacts, location: str, *, sample: bool
) -> QueryAdvice:
    """Read the logs, simulate each candidate, and return them by value; reads a sample of rows unless told not to."""
    log = read_query_log(table, identifier, location)
    workload = log.workload
    schema = table.schema()
    ordered = [field for field in schema.fields if isinstance(field.field_type, _ORDERED_TYPES)]
    names = {field.name for field in ordered}
    own = _own_order(facts, names)
    used = [name for name in dict.fromkeys([*workload.uses(), *own]) if name in names]
    files = len(facts.bounds.files)
    bounds = {field.name: facts.bounds.of(field.field_id, field.field_type) for field in ordered if field.name in used}
    real, scales = bounds_of_files(bounds)
    sizes = [file.size_bytes for file in facts.bounds.files]
    total = sum(sizes)
    today = []
    for asked in workload.asked:
        met = meets(asked.filter, real, scales, files)
        today.append(sum(size for size, is_met in zip(sizes, met, strict=True) if is_met) / total if total else 0.0)
    mean = sum(share * a.scans for share, a in zip(today, workload.asked, strict=True)) / max(1, workload.scans)
    if not used or not files:
        return QueryAdvice(log, mean, (), sample)
    values = sampled_rows(table, facts, used) if sample else bounded_rows(schema, facts, used)
    rows = sum(file.rows for file in facts.bounds.files)
    drawn = Sample(values, rows)
    times = {field.name: field.field_type for field in ordered if isinstance(field.field_type, _TIME_TYPES)}
    days = {
        name: [
            (v // (1 if isinstance(times[name], DateType) else _DAY_MICROS)) if v is not None else -1
            for v in values[name]
        ]
        for name in used
        if name in times
    }
    size = TableSize(files=files, data_bytes=total, arriving_bytes_a_day=_arriving(facts))
    outcomes = [
        outcome
        for layout in layouts(workload, drawn, own_order=own, time_columns=days)
        if (outcome := evaluate(layout, workload, drawn, today, size, facts.prices, hilbert, days)) is not None
    ]
    return QueryAdvice(log, mean, ranked(outcomes), sample)


def query_findings(advice: QueryAdvice, facts: TableFacts) -> list[Finding]:
    """Return one finding for each candidate that saves bytes; one that says so where none does."""
    log, workload = advice.log, advice.log.workload
    notes = [
        f"{log.scans} scans in {workload.days:.0f} day{'' if round(workload.days) == 1 else 's'} read "
        f"{share_text(advice.share_today)} of the table on average"
    ]
    unhelpable = workload.unhelpable_scans
    if unhelpable:
        notes.append(f"no layout helps {share_text(unhelpable / max(1, workload.scans))} of them")
    if log.not_understood:
        notes.append(f"{log.not_understood} filters were not understood")
    if log.runtime_filters:
        notes.append(f"{log.runtime_filters} scans had runtime filters of joins")
    if log.other_versions:
        notes.append(f"logs of Spark {', '.join(sorted(log.other_versions))} were left out: their text was not tested")
    if workload.scans < _THIN_SCANS or workload.days <= 1:
        notes.append("the log is thin")
    if not advice.sampled:
        notes.append("rough: by bounds alone, without a sample of rows")
    found: list[Finding] = []
    for index, outcome in enumerate(o for o in advice.outcomes if o.saved_bytes_a_day > 0):
        if index >= _MOST_ROWS_SHOWN:
            break
        found.append(_finding(outcome, facts, notes if index == 0 else [], best=index == 0))
    if not found:
        text = "; ".join([*notes, "no layout reads less than today's"])
        action = facts.call("score_partitions")
        return [Finding(topic="queries", severity="low", finding=text, action=action, gain="none: leave it as it is")]
    return found


def layout_text(layout: Layout) -> str:
    """Return the short name of a candidate, for a page."""
    names = ", ".join(layout.columns)
    kinds = {"order": f"table's order ({names})", "sort": f"sort by {names}", "partition": f"days({names})"}
    others = {"hilbert": f"hilbert({names})", "bucket": f"bucket({layout.detail}, {names})", "bloom": f"bloom {names}"}
    return {**kinds, **others}[layout.kind]


def _finding(outcome: Outcome, facts: TableFacts, notes: list[str], *, best: bool) -> Finding:
    saved = 1 - outcome.share / outcome.share_today if outcome.share_today else 0.0
    payback = outcome.payback_days
    pays = "never pays off" if payback is None else f"pays off after {max(1, round(payback))} days"
    worth = saved >= _LEAST_SAVED and payback is not None
    severity: Severity = "low"
    if best and worth:
        severity = "high" if payback is not None and payback <= 30 else "medium"
    text = f"{layout_text(outcome.layout)} would read {share_text(outcome.share)} of the table instead of "
    text += share_text(outcome.share_today)
    if not worth:
        text += ": too little, leave it" if payback is not None else ""
    price = f"about ${outcome.once_dollars:.4g} once and ${outcome.dollars_a_day:.4g} a day for new data"
    return Finding(
        topic="queries",
        severity=severity,
        finding="; ".join([text, price, *notes]),
        action=_action(outcome.layout, facts),
        gain=f"{format_bytes(outcome.saved_bytes_a_day)} not read a day ({share_text(saved)}); {pays}",
        cost_dollars=outcome.once_dollars,
        weight=1.0 + saved if best else saved / 10,
    )


def _action(layout: Layout, facts: TableFacts) -> str:
    names = [quoted(name) if not name.isidentifier() else name for name in layout.columns]
    if layout.kind == "order":
        return facts.compact("strategy => 'sort'")
    if layout.kind == "sort":
        return facts.compact(f"strategy => 'sort', sort_order => {sql_text(', '.join(names))}")
    if layout.kind == "hilbert":
        return facts.compact(f"strategy => 'hilbert', sort_order => {sql_text(', '.join(names))}")
    column = quoted(layout.columns[0])
    if layout.kind == "partition":
        return f"ALTER TABLE {facts.spark_name} ADD PARTITION FIELD days({column})"
    if layout.kind == "bucket":
        return f"ALTER TABLE {facts.spark_name} ADD PARTITION FIELD bucket({layout.detail}, {column})"
    return facts.set_properties({f"write.parquet.bloom-filter-enabled.column.{layout.columns[0]}": "true"})


def _own_order(facts: TableFacts, names: set[str]) -> tuple[str, ...]:
    metadata = facts.metadata
    order = next((o for o in metadata.sort_orders if o.order_id == metadata.default_sort_order_id), None)
    columns = [metadata.schema().find_column_name(field.source_id) or "" for field in order.fields] if order else []
    return tuple(columns) if columns and all(name in names for name in columns) else ()


def _arriving(facts: TableFacts) -> float:
    """Return the bytes that appends added on an average day, by the snapshots that are left."""
    added, times = 0, []
    for snapshot in facts.snapshots_by_time:
        text = snapshot.summary.get("added-files-size") if snapshot.summary is not None else None
        times.append(snapshot.timestamp_ms)
        if snapshot.summary is not None and snapshot.summary.operation.value == "append" and text and text.isdigit():
            added += int(text)
    span = (max(times) - min(times)) / _DAY_MS if times else 0.0
    # A table that was filled within one day says nothing about the next one.
    return added / span if span >= 1 else 0.0
