"""`CALL maintain_table(...)`: all maintenance of a table in the safe order, one row for each step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from iceberg_compact_sql.actions.context import Context
from iceberg_compact_sql.call.declaration import (
    BRANCH,
    DRY_RUN,
    TABLE,
    Arguments,
    Kind,
    Parameter,
    Procedure,
    Row,
    columns,
)
from iceberg_compact_sql.plan.layouts.order import STRATEGY_NAMES
from iceberg_compact_sql.procedures.compact_table import PROCEDURE as COMPACT_TABLE
from iceberg_compact_sql.procedures.expire_snapshots import QUARANTINE
from iceberg_compact_sql.procedures.maintenance.inherited_parameters import inherited_parameters

if TYPE_CHECKING:
    from iceberg_compact_sql.actions.maintain import StepResult


def run(context: Context, arguments: Arguments) -> list[Row]:
    """Compact, merge position deletes, rewrite manifests, expire snapshots, remove orphans, in this order.

    A step that the table does not allow is reported and skipped. A step that fails, or whose commit has an unknown
    outcome, ends the run: later steps depend on it.
    """
    from iceberg_compact_sql.actions.maintain import MaintainRequest, maintain
    from iceberg_compact_sql.procedures.maintenance.maintenance_steps import chosen_steps, steps_of

    properties = context.open_table(arguments["table"]).table.properties
    steps = steps_of(context, arguments, chosen_steps(arguments, properties), properties)
    result = maintain(MaintainRequest(steps=steps, plan_only=arguments["dry_run"]), context)
    return [step_row(step) for step in result.steps]


def step_row(step_result: StepResult) -> Row:
    """Return the row of a step: its name, its outcome, and what it did, would do, or why it failed."""
    from iceberg_compact_sql.procedures.maintenance.step_details import detail

    if step_result.outcome not in ("done", "planned"):
        return step_result.step.name, step_result.outcome, step_result.error, step_result.elapsed_ms
    text = detail(step_result.result)
    return step_result.step.name, step_result.outcome if text else "nothing to do", text, step_result.elapsed_ms


PROCEDURE = Procedure(
    name="maintain_table",
    summary="Compact, merge position deletes, rewrite manifests, expire and remove orphans, in the safe order.",
    parameters=(
        TABLE,
        Parameter(
            "steps",
            Kind.STRINGS,
            "some of compact, position_deletes, manifests, expire, orphans; they always run in this order",
            default_text="`iceberg-compact.steps`, else all",
            example="array('compact', 'expire')",
        ),
        Parameter(
            "target",
            Kind.SIZE,
            "compact: target size of the output files",
            default_text="`iceberg-compact.target`, else as compact_table",
            minimum=1,
        ),
        Parameter(
            "where",
            Kind.STRING,
            "compact: a filter that selects files",
            default_text="`iceberg-compact.where`, else all",
        ),
        BRANCH,
        Parameter(
            "strategy",
            Kind.CHOICE,
            "compact: as compact_table",
            default_text="`iceberg-compact.strategy`, else as compact_table",
            choices=STRATEGY_NAMES,
        ),
        Parameter(
            "sort_order",
            Kind.STRING,
            "compact: the order of rows, as compact_table",
            default_text="`iceberg-compact.sort-order`, else as compact_table",
        ),
        Parameter(
            "max_bytes", Kind.SIZE, "compact: stop at this many input bytes", default_text="`iceberg-compact.max-bytes`"
        ),
        Parameter(
            "older_than",
            Kind.TIME,
            "expire: remove snapshots older than this",
            default_text="`iceberg-compact.expire.older-than`, else as expire_snapshots",
        ),
        Parameter(
            "retain_last",
            Kind.INT,
            "expire: keep at least this many snapshots of each branch",
            default_text="`iceberg-compact.expire.retain-last`, else as expire_snapshots",
            minimum=1,
        ),
        Parameter(
            "orphans_older_than",
            Kind.TIME,
            "orphans: delete only files that were last written before this",
            default_text="`iceberg-compact.orphans.older-than`, else 3 days ago",
        ),
        QUARANTINE,
        DRY_RUN,
        *inherited_parameters(),
    ),
    columns=columns("step string, outcome string, detail string, elapsed_ms bigint"),
    dry_run_columns=columns("step string, outcome string, detail string, elapsed_ms bigint"),
    run=run,
    changes_tables=True,
    example="CALL maintain_table('db.events', steps => array('compact', 'expire'))",
    option_prefixes=COMPACT_TABLE.option_prefixes,
    option_names=COMPACT_TABLE.option_names,
)
