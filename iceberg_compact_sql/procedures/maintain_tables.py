"""`CALL maintain_tables(...)`: maintenance of many tables within budgets, one row for each table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from iceberg_compact_sql.actions.context import Context
from iceberg_compact_sql.call.binding import GivenArgument, bind
from iceberg_compact_sql.call.declaration import DRY_RUN, Arguments, Kind, Parameter, Procedure, Row, columns
from iceberg_compact_sql.procedures.maintain_table import PROCEDURE as MAINTAIN_TABLE
from iceberg_compact_sql.procedures.maintain_table import step_row
from iceberg_compact_sql.procedures.score_tables import PATTERN, TARGET

if TYPE_CHECKING:
    from iceberg_compact_sql.actions.maintain import Step
    from iceberg_compact_sql.actions.maintain_tables import TableMaintenance


def run(context: Context, arguments: Arguments) -> list[Row]:
    """Run maintain_table on the tables that need it most, one after another, as long as every budget holds.

    A dry run makes the same choice and changes nothing. The failure of one table is its row.
    """
    from iceberg_compact_sql.actions.maintain_tables import MaintainTablesRequest, maintain_tables
    from iceberg_compact_sql.plan.choose_tables import ChoiceLimits
    from iceberg_compact_sql.procedures.maintenance.maintenance_steps import chosen_steps, steps_of

    # A wrong name of a step is an error of the call, before any table is read.
    chosen_steps(arguments, {})

    def steps_of_table(name: str, properties: Mapping[str, str]) -> tuple[Step, ...]:
        given = [
            GivenArgument(name, "table"),
            GivenArgument(arguments["steps"], "steps"),
            GivenArgument(arguments["target"], "target"),
        ]
        bound = bind(MAINTAIN_TABLE, given, now_ms=context.now_ms, time_zone=lambda: context.view.time_zone)
        return steps_of(context, bound, chosen_steps(bound, properties), properties)

    request = MaintainTablesRequest(
        steps_of=steps_of_table,
        pattern=arguments["pattern"],
        exclude=tuple(arguments["exclude"] or ()),
        target_bytes=arguments["target"],
        limits=ChoiceLimits(
            min_score=arguments["min_score"],
            max_tables=arguments["max_tables"],
            max_cost=arguments["max_cost"],
            max_bytes=arguments["max_bytes"],
            time_budget_ms=arguments["time_budget"],
            created_before_ms=arguments["created_before"],
            order=arguments["order"],
        ),
        max_failures=arguments["max_failures"],
        plan_only=arguments["dry_run"],
    )
    return [table_row(table) for table in maintain_tables(request, context).tables]


def table_row(table: TableMaintenance) -> Row:
    """Return the row of a table: the choice, its reason and estimate, and what was done."""
    outcome, detail = _outcome(table)
    return (
        table.match.shown,
        "maintain" if table.maintain else "skip",
        table.reason,
        table.score,
        None if table.price is None else table.price.dollars,
        None if table.price is None else table.price.seconds,
        outcome,
        detail,
        table.score_after,
        table.elapsed_ms,
        table.estimate_source or None,
    )


def _outcome(table: TableMaintenance) -> tuple[str | None, str | None]:
    if not table.maintain or (table.result is None and not table.error):
        return None, None
    steps = () if table.result is None else table.result.steps
    rows = [step_row(step) for step in steps if step.outcome != "not run"]
    texts = [f"{name}: {text}" for name, outcome, text, _ in rows if outcome != "nothing to do"]
    detail = "; ".join([*texts, *([table.error] if table.error else [])])
    if table.failed:
        return "failed", detail
    return ("done" if any(outcome == "done" for _, outcome, *_ in rows) else "nothing to do"), detail


_COLUMNS = columns(
    "table string, action string, reason string, score double, estimated_cost double, estimated_seconds double, "
    "outcome string, detail string, score_after double, elapsed_ms bigint, "
    "estimate_source string"
)
PROCEDURE = Procedure(
    name="maintain_tables",
    summary="Run maintain_table on the tables that need it most, one after another, within budgets.",
    parameters=(
        PATTERN,
        Parameter(
            "steps",
            Kind.STRINGS,
            "some of compact, position_deletes, manifests, expire, orphans, for every table",
            default_text="the table's `iceberg-compact.steps`, else all",
            example="array('compact', 'expire')",
        ),
        TARGET,
        Parameter("min_score", Kind.DOUBLE, "leave out tables with a lower score", minimum=0, maximum=1),
        Parameter("max_tables", Kind.INT, "maintain at most this many tables", minimum=1),
        Parameter("max_cost", Kind.DOUBLE, "stop at this estimated cost in dollars, over all tables", above=0),
        Parameter("max_bytes", Kind.SIZE, "stop at this many input bytes of compaction, over all tables", minimum=1),
        Parameter("time_budget", Kind.AGE, "start only tables that are expected to finish within this time", minimum=1),
        Parameter(
            "order",
            Kind.CHOICE,
            "score: the worst table first; gain: the most files saved for a dollar first",
            default="score",
            choices=("score", "gain"),
        ),
        Parameter("created_before", Kind.TIME, "leave out tables that were created later", example="'1h'"),
        Parameter("max_failures", Kind.INT, "start no further table after this many have failed", default=5, minimum=1),
        DRY_RUN,
        Parameter(
            "exclude",
            Kind.STRINGS,
            "leave out tables that match one of these patterns",
            example="array('db.raw_*')",
        ),
    ),
    columns=_COLUMNS,
    dry_run_columns=_COLUMNS,
    run=run,
    changes_tables=True,
    example="CALL maintain_tables('db.*', max_cost => 5.0, time_budget => '2h')",
)
