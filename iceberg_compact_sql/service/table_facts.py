"""What the service shows about one table: partitions, file sizes, commits, jobs and schedules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from iceberg_compact_sql.call.declaration import Procedure
from iceberg_compact_sql.procedures.registry import procedures
from iceberg_compact_sql.procedures.run_procedure import run_procedure
from iceberg_compact_sql.redaction import mask_rows
from iceberg_compact_sql.service.checks import bind_request
from iceberg_compact_sql.service.jobs import iso_time, plain_json
from iceberg_compact_sql.service.process import Service
from iceberg_compact_sql.table.summary_keys import RUN_ID

_MOST_COMMITS = 500


@dataclass(frozen=True)
class TableFacts:
    """Figures of one table at this moment; `commits` are oldest first, `sizes` are bytes of data files."""

    table: str
    partitions: list[dict[str, Any]]
    commits: list[dict[str, Any]]
    sizes: list[int]
    target_bytes: int
    schedules: list[dict[str, Any]]


def table_facts(service: Service, table: str) -> TableFacts:
    """Read the facts of a table by its full name; reads only metadata."""
    # Imported late for start-up time: HTTP answers before pyiceberg is loaded.
    from iceberg_compact_sql.plan.options import target_file_bytes
    from iceberg_compact_sql.table.inventory import read_inventory

    context = service.context()
    procedure = procedures()["score_partitions"]
    target = service.scores_target()
    arguments = {} if target is None else {"target": target}
    partitions = _rows(service, procedure, table, arguments)
    opened = context.open_table(table).table
    snapshots = sorted(opened.metadata.snapshots, key=lambda snapshot: snapshot.timestamp_ms)[-_MOST_COMMITS:]
    commits = []
    for snapshot in snapshots:
        summary: Any = snapshot.summary or {}
        commits.append(
            {
                "committed_at": iso_time(snapshot.timestamp_ms),
                "committed_ms": snapshot.timestamp_ms,
                "snapshot_id": snapshot.snapshot_id,
                "operation": str(getattr(summary.operation, "value", "")) if snapshot.summary else "",
                "run_id": summary.get(RUN_ID),
                "total_data_files": int(summary.get("total-data-files") or 0),
                "added_data_files": int(summary.get("added-data-files") or 0),
                "removed_data_files": int(summary.get("deleted-data-files") or 0),
            }
        )
    return TableFacts(
        table=table,
        partitions=partitions,
        commits=commits,
        sizes=[file.size_bytes for file in read_inventory(opened, "main").files],
        target_bytes=target_file_bytes(target, opened.metadata.properties),
        schedules=schedules_for(service, table),
    )


def schedules_for(service: Service, table: str) -> list[dict[str, Any]]:
    """The schedules that name this table."""
    shown = service.clock.shown(service.queue.now_ms())
    bare = table.partition(".")[2]
    return [schedule_json(entry) for entry in shown if entry["table"] in (table, bare)]


def schedule_json(entry: dict[str, Any]) -> dict[str, Any]:
    """A schedule as the HTTP answers show it."""
    values = {name: value for name, value in entry.items() if name not in ("next_ms", "last_ms", "last_job")}
    last = None if entry["last_ms"] is None else {"at": iso_time(entry["last_ms"]), "job_id": entry["last_job"]}
    return {**values, "next": iso_time(entry["next_ms"]), "last": last}


def _rows(service: Service, procedure: Procedure, table: str, arguments: dict[str, Any]) -> list[dict[str, Any]]:
    context = service.context()
    bound = bind_request(context, procedure, table, arguments)
    rows = mask_rows(run_procedure(procedure, context, bound, procedure.name))
    names = [column.name for column in procedure.result_columns(bound)]
    return [dict(zip(names, plain_json(row), strict=True)) for row in rows]
