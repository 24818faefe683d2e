"""`iceberg-compact`: compaction always, expiry and orphans when asked for; one line for each step.

Exit code 0 when every step succeeded, 1 when one failed, 2 for usage.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from iceberg_compact_sql.errors import IcebergCompactError, InvalidArgumentError, MissingDependencyError
from iceberg_compact_sql.flat_command.work import Call, Flags, Work, plan_work
from iceberg_compact_sql.procedures.registry import procedures
from iceberg_compact_sql.redaction import mask_remembered, redact, remember_secrets
from iceberg_compact_sql.units import parse_duration_ms
from iceberg_compact_sql.version import VERSION

_LOCAL_MASTER = "local[*]"
_MB = 1024**2
# Columns that count something which did not work.
_FAILED_COUNTS = ("failed_data_files_count", "failed_deletes_count")
_NOT_SHOWN = ("elapsed_ms", "snapshot_id", "groups_count", "commits_count")
# Rows of a dry run that a line holds at most.
_MOST_ROWS = 1000


class _Usage(click.ClickException):
    """Wrong usage or configuration: one sentence, exit code 2."""

    exit_code = 2

    def show(self, file: Any = None) -> None:
        click.echo(f"iceberg-compact: {self.message}", err=True)


def _age(context: click.Context, parameter: click.Parameter, value: str) -> str:
    """Refuse a duration that cannot be read, before anything is done."""
    try:
        parse_duration_ms(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    return value


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(VERSION, prog_name="iceberg-compact")
@click.option("--config", type=click.Path(path_type=Path), help="A YAML file of either shape.")
@click.option("--catalog-uri", help="Address of the catalog; overrides that of the file.")
@click.option("--table", help="One table; without it, all tables of the file.")
@click.option("--strategy", help="small_files, delete_files, time_series, full, binpack, sort, zorder or hilbert.")
@click.option("--target-size-mb", type=click.IntRange(min=1), help="Target size of files in MB.")
@click.option("--expire-snapshots", is_flag=True, help="Also expire snapshots.")
@click.option("--expire-older-than", default="168h", show_default=True, callback=_age, help="Age of snapshots.")
@click.option("--expire-retain-last", type=click.IntRange(min=1), default=1, show_default=True, help="Snapshots kept.")
@click.option("--expire-keep-files", is_flag=True, help="Expire metadata only.")
@click.option("--orphans", is_flag=True, help="Also remove orphan files.")
@click.option("--orphan-age", default="72h", show_default=True, callback=_age, help="Age of orphan files.")
@click.option("--dry-run", is_flag=True, help="Show what would be done, and change nothing.")
@click.option("--format", "style", type=click.Choice(["text", "json"]), default="text", show_default=True)
def main(
    config: Path | None,
    catalog_uri: str | None,
    table: str | None,
    strategy: str | None,
    target_size_mb: int | None,
    expire_snapshots: bool,
    expire_older_than: str,
    expire_retain_last: int,
    expire_keep_files: bool,
    orphans: bool,
    orphan_age: str,
    dry_run: bool,
    style: str,
) -> None:
    """Compact Iceberg tables; expire snapshots and remove orphans when asked for."""
    flags = Flags(
        config=config,
        catalog_uri=catalog_uri,
        table=table,
        strategy=strategy,
        target_bytes=None if target_size_mb is None else target_size_mb * _MB,
        expire=expire_snapshots,
        expire_older_than=expire_older_than,
        expire_retain_last=expire_retain_last,
        expire_keep_files=expire_keep_files,
        orphans=orphans,
        orphan_age=orphan_age,
        dry_run=dry_run,
    )
    try:
        work = plan_work(flags)
    except IcebergCompactError as error:
        raise _Usage(mask_remembered(str(error))) from None
    try:
        sys.exit(0 if _run(work, style) else 1)
    except (InvalidArgumentError, MissingDependencyError) as error:
        raise _Usage(mask_remembered(str(error))) from None
    except IcebergCompactError as error:
        click.echo(f"iceberg-compact: {mask_remembered(str(error))}", err=True)
        sys.exit(1)
    except KeyboardInterrupt as interrupt:
        click.echo(mask_remembered(f"iceberg-compact: cancelled {interrupt}".strip()), err=True)
        sys.exit(1)


def _run(work: Work, style: str) -> bool:
    """Run every step of every table; return whether all of them succeeded. A failed step ends its table only."""
    from iceberg_compact_sql.flat_command.advisory_lock import TableLocks

    locks = None if work.dsn is None else TableLocks(work.dsn)
    session = _session(work)
    succeeded = True
    for pattern, compaction in work.tables:
        for table, lock_name in _tables(session, pattern):
            failed_step: str | None = None
            for call in work.calls(table, compaction):
                if failed_step is not None:
                    line = {"step": call.step, "table": table, "outcome": "not run", "error": f"{failed_step} failed"}
                    _print(line | {"elapsed_ms": 0}, style)
                    continue
                locked = contextlib.nullcontext() if locks is None or work.flags.dry_run else locks.held(lock_name)
                line = _step(session, call, table, locked)
                _print(line, style)
                if line["outcome"] == "failed":
                    failed_step, succeeded = call.step, False
    return succeeded


def _session(work: Work) -> Any:
    # Imported late for start-up time: help and usage errors need no session.
    from iceberg_compact_sql.doors.command_session import CommandSession

    remember_secrets(work.settings)

    def start() -> Any:
        from iceberg_compact_sql import register
        from iceberg_compact_sql.doors.start_spark import start_session

        return register(start_session(work.master or _LOCAL_MASTER, work.settings), warehouse=work.warehouse)

    return CommandSession(work.settings, warehouse=work.warehouse, start=start)


def _tables(session: Any, pattern: str) -> Iterator[tuple[str, str]]:
    """Yield the tables of a name or pattern: the full name, and the name of its lock."""
    from iceberg_compact_sql.actions.context import Context

    if any(mark in pattern for mark in "*?["):
        # Imported late: pyiceberg is not needed for usage errors.
        from iceberg_compact_sql.catalogs.matching_tables import matching_tables
        from iceberg_compact_sql.catalogs.names import show_name

        for match in matching_tables(session.view, pattern):
            if not match.is_view:
                yield match.shown, show_name(match.identifier)
        return
    full_name = Context(session.view).full_name(pattern)
    yield full_name, full_name.partition(".")[2] or full_name


def _step(session: Any, call: Call, table: str, locked: contextlib.AbstractContextManager[None]) -> dict[str, Any]:
    """Run one step; an error is its outcome, except wrong arguments."""
    started = time.monotonic()
    line: dict[str, Any] = {"step": call.step, "table": table, "procedure": call.procedure}
    try:
        with locked:
            answer = session.call(procedures()[call.procedure], call.arguments)
        names = [column.name for column in answer.columns]
        rows = [dict(zip(names, row, strict=True)) for row in answer.rows]
        line |= {"outcome": _outcome(call, rows), "result": rows[:_MOST_ROWS], "rows": len(rows)}
    except InvalidArgumentError:
        # Wrong options are an error of usage, also of the first table.
        raise
    except IcebergCompactError as error:
        line |= {"outcome": "failed", "error": mask_remembered(str(error))}
    except Exception as error:
        text = f"{type(error).__name__}: {redact(error)}".split("\n\nJVM stacktrace")[0]
        line |= {"outcome": "failed", "error": text}
    return line | {"elapsed_ms": int((time.monotonic() - started) * 1000)}


def _outcome(call: Call, rows: list[dict[str, Any]]) -> str:
    if call.arguments["dry_run"]:
        changes = [row for row in rows if row.get("action") != "skip"]
        return "planned" if changes else "nothing to do"
    if any(row.get(name) for row in rows for name in _FAILED_COUNTS) or any(
        row.get("deleted") is False for row in rows
    ):
        return "failed"
    changed = any(value for row in rows for name, value in row.items() if name not in _NOT_SHOWN)
    return "done" if changed else "nothing to do"


def _print(line: dict[str, Any], style: str) -> None:
    if style == "json":
        click.echo(json.dumps(line, default=str))
        return
    detail = line.get("error") or _detail(line)
    click.echo(f"{line['step']} {line['table']}: {line['outcome']}{f': {detail}' if detail else ''}")


def _detail(line: dict[str, Any]) -> str:
    rows = line.get("result") or []
    if line["step"] == "orphans" or len(rows) != 1:
        return f"{line['rows']} rows" if rows else ""
    return ", ".join(f"{name} {value}" for name, value in rows[0].items() if value and name not in _NOT_SHOWN)


if __name__ == "__main__":
    main()
