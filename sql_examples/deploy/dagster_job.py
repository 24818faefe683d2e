"""Dagster: an op that runs the command, reads its JSON lines and fails with the step that failed."""

from __future__ import annotations

import json
import subprocess

from dagster import Definitions, OpExecutionContext, ScheduleDefinition, job, op

CONFIG = "/etc/iceberg-compact/config.yaml"


def command(table: str) -> list[str]:
    """Return the command of one table."""
    return ["iceberg-compact", "--config", CONFIG, "--table", table, "--expire-snapshots", "--format", "json"]


def maintain(table: str) -> list[dict]:
    """Run the command; return its steps, and raise when one of them failed."""
    done = subprocess.run(command(table), capture_output=True, text=True, check=False)
    steps = [json.loads(line) for line in done.stdout.splitlines()]
    if done.returncode != 0:
        errors = [step["error"] for step in steps if step["outcome"] == "failed"]
        raise RuntimeError("; ".join(errors) or done.stderr)
    return steps


@op
def compact_events(context: OpExecutionContext) -> None:
    for step in maintain("db.events"):
        context.log.info("%s: %s in %d ms", step["step"], step["outcome"], step["elapsed_ms"])


@job
def iceberg_compact() -> None:
    compact_events()


definitions = Definitions(
    jobs=[iceberg_compact],
    schedules=[ScheduleDefinition(job=iceberg_compact, cron_schedule="30 2 * * *")],
)
