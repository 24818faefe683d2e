"""`CALL rewrite_manifests(...)`: fewer manifests, clustered by partition, so that planning reads less."""

from __future__ import annotations

from iceberg_compact_sql.procedures.context import Context
from iceberg_compact_sql.sql.parameters import (
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


def run(context: Context, arguments: Arguments) -> list[Row]:
    """Commit a REPLACE snapshot with the same files in fewer manifests; a no-op where nothing is to be gained."""
    from iceberg_compact_sql.commit.regroup import plan_regrouping, regroup_manifests
    from iceberg_compact_sql.procedures.outcomes import new_stamp, settled, writable_table
    from iceberg_compact_sql.table.inventory import branch_head

    opened = writable_table(context, arguments["table"])
    head = branch_head(opened.table.metadata, arguments["branch"])
    if arguments["dry_run"] or head is None:
        planned = plan_regrouping(opened.table, arguments["branch"], arguments["spec_id"])
        return [(planned.replaced, planned.made, None)]
    attempted, done = regroup_manifests(
        opened.table, branch=arguments["branch"], spec_id=arguments["spec_id"], summary=new_stamp()
    )
    snapshot_id = settled(attempted.outcome, attempted.snapshot_id, attempted.detail)
    if snapshot_id is not None:
        context.refresh(opened)
    return [(done.replaced, done.made, snapshot_id)]


PROCEDURE = Procedure(
    name="rewrite_manifests",
    summary="Write the table's manifests anew, clustered by partition and of the target size.",
    parameters=(
        TABLE,
        Parameter("spec_id", Kind.INT, "only manifests of this partition spec", default_text="all", minimum=0),
        BRANCH,
        DRY_RUN,
        Parameter("use_caching", Kind.BOOLEAN, "accepted for Iceberg's sake; nothing is cached", default=False),
    ),
    columns=columns("rewritten_manifests_count int, added_manifests_count int, snapshot_id bigint"),
    dry_run_columns=columns("rewritten_manifests_count int, added_manifests_count int, snapshot_id bigint"),
    run=run,
    example="CALL rewrite_manifests('db.events')",
)
