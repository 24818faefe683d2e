"""The steps of a maintenance run: which ones, with which arguments, and what to say of each."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module

from iceberg_compact_sql import events
from iceberg_compact_sql.actions.context import Context
from iceberg_compact_sql.call.binding import Given, bind
from iceberg_compact_sql.call.declaration import Arguments, Kind, Procedure, Row
from iceberg_compact_sql.errors import (
    CommitUnknownError,
    IcebergCompactError,
    InvalidArgumentError,
    NotFoundError,
    UnsupportedError,
    did_you_mean,
)
from iceberg_compact_sql.redaction import redact
from iceberg_compact_sql.units import format_bytes

PROPERTY_PREFIX = "iceberg-compact."


@dataclass(frozen=True)
class Step:
    """One step: the procedure that does it, and where its arguments come from.

    `arguments` leads from a parameter of maintain_table to one of the procedure; `properties` likewise from a table
    property below `iceberg-compact.`. An argument of the call wins over a property.
    """

    name: str
    procedure: str
    arguments: Mapping[str, str] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict)

    @property
    def declaration(self) -> Procedure:
        declared: Procedure = import_module(f"iceberg_compact_sql.procedures.{self.procedure}").PROCEDURE
        return declared


STEPS = (
    Step(
        "compact",
        "compact_table",
        {"target": "target", "where": "where", "branch": "branch", "max_bytes": "max_bytes"},
        {"target": "target", "where": "where", "max-bytes": "max_bytes"},
    ),
    Step("position_deletes", "rewrite_position_deletes", {"branch": "branch"}),
    Step("manifests", "rewrite_manifests", {"branch": "branch"}, {"manifests.sort-by": "sort_by"}),
    Step(
        "expire",
        "expire_snapshots",
        {"older_than": "older_than", "retain_last": "retain_last", "quarantine": "quarantine"},
        {"expire.older-than": "older_than", "expire.retain-last": "retain_last", "quarantine": "quarantine"},
    ),
    Step(
        "orphans",
        "remove_orphans",
        {"orphans_older_than": "older_than", "quarantine": "quarantine"},
        {"orphans.older-than": "older_than", "quarantine": "quarantine"},
    ),
)


def chosen_steps(arguments: Arguments, properties: Mapping[str, str]) -> tuple[Step, ...]:
    """The steps that the call or the table asks for, in the safe order."""
    told = properties.get(f"{PROPERTY_PREFIX}steps")
    names = arguments["steps"]
    if names is None:
        if not told:
            return STEPS
        names = told.split(",")
    wanted = [name.strip().lower() for name in names]
    known = [step.name for step in STEPS]
    if not wanted:
        raise InvalidArgumentError(
            "steps is empty", argument="steps", value=names, hint=f"Name some of {', '.join(known)}, or leave it out."
        )
    source = f"the table's property {PROPERTY_PREFIX}steps" if arguments["steps"] is None else "steps"
    for name in wanted:
        if name not in known:
            raise InvalidArgumentError(
                f"{source} names '{name}', which is not one of {', '.join(known)}",
                argument="steps",
                value=name,
                hint=did_you_mean(name, known),
            )
    return tuple(step for step in STEPS if step.name in wanted)


def run_steps(
    context: Context, arguments: Arguments, steps: Sequence[Step], properties: Mapping[str, str]
) -> list[Row]:
    """A row a step. All arguments are bound before the first step runs, so that a wrong one changes nothing."""
    bound = {step.name: _bound(context, step, arguments, properties) for step in steps}
    rows: list[Row] = []
    begun = time.monotonic()
    stopped_by: str | None = None
    for step in steps:
        if stopped_by is not None:
            rows.append((step.name, "not run", f"{stopped_by} left doubt", 0))
            continue
        events.reach("maintain.step", step=step.name)
        started = time.monotonic()
        moment_ms = context.now_ms + int((started - begun) * 1000)
        now = Context(context.view, spark=context.spark, now_ms=moment_ms, catalog=context.catalog)
        outcome, detail = _run_step(now, step, bound[step.name], first=not rows)
        rows.append((step.name, outcome, detail, int((time.monotonic() - started) * 1000)))
        if outcome in ("failed", "unknown"):
            stopped_by = step.name
    return rows


def _bound(context: Context, step: Step, arguments: Arguments, properties: Mapping[str, str]) -> Arguments:
    procedure = step.declaration
    told = {inner: arguments[outer] for outer, inner in step.arguments.items() if outer in arguments.given}
    given = {"table": Given(arguments["table"], "table")}
    sources: dict[str | None, str] = {}
    for suffix, name in step.properties.items():
        text = properties.get(PROPERTY_PREFIX + suffix)
        if text is not None and name not in told:
            parameter = procedure.parameter(name)
            listed = parameter is not None and parameter.kind is Kind.STRINGS
            given[name] = Given([item.strip() for item in text.split(",")] if listed else text, name)
            sources[name] = PROPERTY_PREFIX + suffix
    try:
        bound = bind(procedure, list(given.values()), now_ms=context.now_ms, time_zone=lambda: context.view.time_zone)
        bound = bound.replace(**told, dry_run=arguments["dry_run"])
        if procedure.check is not None:
            procedure.check(context, bound)
    except IcebergCompactError as error:
        if error.argument in sources:
            error.hint = f"It is the table's property {sources[error.argument]}. {error.hint or ''}".strip()
        raise error.with_procedure(procedure.name)  # noqa: B904 - the same error, named
    return bound


def _run_step(context: Context, step: Step, bound: Arguments, *, first: bool) -> tuple[str, str]:
    procedure = step.declaration
    try:
        rows = procedure.run(context, bound)
    except UnsupportedError as error:
        return "refused", str(error)
    except CommitUnknownError as error:
        return "unknown", str(error)
    except (InvalidArgumentError, NotFoundError) as error:
        if first:
            # Nothing has been done yet: the call is wrong, not the table.
            raise
        return "failed", str(error)
    except IcebergCompactError as error:
        return "failed", str(error)
    except Exception as error:
        if first:
            raise
        # A store or catalog that fails now must not hide what the steps before have committed.
        return "failed", f"{type(error).__name__}: {redact(error)}"
    detail = _detail(procedure, bound, rows)
    if not detail:
        return "nothing to do", ""
    return ("planned" if bound["dry_run"] else "done"), detail


def _detail(procedure: Procedure, bound: Arguments, rows: list[Row]) -> str:
    """What a step did or would do, in the words of its own columns; empty when that is nothing."""
    if procedure.name == "remove_orphans":
        gone = [row for row in rows if row[3] or bound["dry_run"]]
        stayed = f", {len(rows) - len(gone)} not deleted" if len(rows) > len(gone) else ""
        return f"{len(gone)} files, {format_bytes(sum(row[1] for row in gone))}{stayed}" if rows else ""
    if procedure.name == "compact_table" and bound["dry_run"]:
        groups = [row for row in rows if row[3] == "rewrite"]
        files = sum(row[5] for row in groups)
        return f"{len(groups)} groups, {files} files, {format_bytes(sum(row[7] for row in groups))}" if groups else ""
    if procedure.name == "expire_snapshots" and bound["dry_run"]:
        snapshots = sum(row[0] == "snapshot" for row in rows)
        freed = format_bytes(sum(row[2] or 0 for row in rows))
        return f"{snapshots} snapshots, {len(rows) - snapshots} files, {freed}" if rows else ""
    columns = procedure.result_columns(bound)
    said = [
        f"{column.name} {value}"
        for row in rows
        for column, value in zip(columns, row, strict=True)
        if value and column.name not in ("elapsed_ms", "snapshot_id", "groups_count", "commits_count")
    ]
    return ", ".join(said)
