"""`CALL rewrite_manifests(...)`: fewer manifests, clustered by partition, so that planning reads less."""

from __future__ import annotations

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


def run(context: Context, arguments: Arguments) -> list[Row]:
    """Commit a REPLACE snapshot with the same files in better manifests; a no-op where nothing is to be gained."""
    from iceberg_compact_sql.actions.writable import new_stamp, settled, writable_table
    from iceberg_compact_sql.commit.rewrite_manifests import RegroupRequest, plan_regrouping, regroup_manifests
    from iceberg_compact_sql.table.inventory import branch_head

    opened = writable_table(context, arguments["table"])
    branch = arguments["branch"]
    head = branch_head(opened.table.metadata, branch)
    request = RegroupRequest(arguments["spec_id"], tuple(arguments["sort_by"] or ()))
    if arguments["dry_run"] or head is None:
        planned = plan_regrouping(opened.table, request, branch=branch)
        return [(planned.replaced, planned.made, None)]
    attempted, done = regroup_manifests(opened.table, request, branch=branch, summary=new_stamp())
    snapshot_id = settled(attempted.outcome, attempted.snapshot_id, attempted.detail)
    if snapshot_id is not None:
        context.refresh(opened)
    return [(done.replaced, done.made, snapshot_id)]


def check_fields(context: Context, arguments: Arguments) -> None:
    """Refuse a spec or partition fields that the table does not have."""
    from iceberg_compact_sql.commit.rewrite_manifests import RegroupRequest, check_request

    if arguments["sort_by"] or arguments["spec_id"] is not None:
        metadata = context.open_table(arguments["table"]).table.metadata
        check_request(metadata, RegroupRequest(arguments["spec_id"], tuple(arguments["sort_by"] or ())))


PROCEDURE = Procedure(
    name="rewrite_manifests",
    summary="Write the table's manifests anew, clustered by partition and of the target size.",
    parameters=(
        TABLE,
        Parameter("spec_id", Kind.INT, "only manifests of this partition spec", default_text="all", minimum=0),
        BRANCH,
        DRY_RUN,
        Parameter("use_caching", Kind.BOOLEAN, "accepted for Iceberg's sake; nothing is cached", default=False),
        Parameter(
            "sort_by",
            Kind.STRINGS,
            "partition fields by which the entries are clustered first",
            default_text="the spec's own order",
            example="array('day', 'region_bucket')",
        ),
    ),
    columns=columns("rewritten_manifests_count int, added_manifests_count int, snapshot_id bigint"),
    dry_run_columns=columns("rewritten_manifests_count int, added_manifests_count int, snapshot_id bigint"),
    run=run,
    example="CALL rewrite_manifests('db.events')",
    check=check_fields,
)
