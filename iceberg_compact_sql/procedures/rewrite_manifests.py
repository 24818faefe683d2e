"""`CALL rewrite_manifests(...)`: fewer manifests, clustered by partition, so that planning reads less."""

from __future__ import annotations

from typing import TYPE_CHECKING

from iceberg_compact_sql.actions.context import Context
from iceberg_compact_sql.call.declaration import (
    BRANCH,
    DRY_RUN,
    TABLE,
    Arguments,
    IcebergForm,
    Kind,
    Parameter,
    Procedure,
    Row,
    columns,
)
from iceberg_compact_sql.errors import IcebergError, InvalidArgumentError

if TYPE_CHECKING:
    from iceberg_compact_sql.actions.rewrite_manifests import ManifestsRequest, ManifestsResult


def run(context: Context, arguments: Arguments) -> list[Row]:
    """Commit a REPLACE snapshot with the same files in fewer manifests; do nothing if that saves nothing."""
    from iceberg_compact_sql.actions.rewrite_manifests import plan_manifests, rewrite_manifests

    request = request_of(arguments)
    return [result_row((plan_manifests if arguments["dry_run"] else rewrite_manifests)(request, context))]


def request_of(arguments: Arguments) -> ManifestsRequest:
    """Return the request; in Iceberg's form the default spec is the current one, and sort_by must not be empty."""
    from iceberg_compact_sql.actions.rewrite_manifests import ManifestsRequest

    if arguments.iceberg_form and arguments["sort_by"] == ():
        rule = "sort_by must not be empty when provided"
        raise InvalidArgumentError(
            rule,
            argument="sort_by",
            value=(),
            iceberg=IcebergError(rule),
            hint="Name partition fields, as in array('day'), or leave it out.",
        )
    return ManifestsRequest(
        table=arguments["table"],
        branch=arguments["branch"],
        spec_id=arguments["spec_id"],
        sort_by=tuple(arguments["sort_by"] or ()),
        current_spec_only=arguments.iceberg_form,
    )


def result_row(result: ManifestsResult) -> Row:
    """Return the result of a run or a dry run in the order of the columns."""
    return result.rewritten_manifests, result.added_manifests, result.snapshot_id


def check_fields(context: Context, arguments: Arguments) -> None:
    """Refuse a spec or partition fields that the table does not have."""
    from iceberg_compact_sql.actions.rewrite_manifests import check_manifests

    check_manifests(request_of(arguments), context)


PROCEDURE = Procedure(
    name="rewrite_manifests",
    summary="Rewrite the table's manifests to the target size, clustered by partition.",
    parameters=(
        TABLE,
        Parameter(
            "spec_id",
            Kind.INT,
            "rewrite only manifests of this partition spec",
            default_text="all; in Iceberg's form the current one",
            minimum=0,
        ),
        BRANCH,
        DRY_RUN,
        Parameter(
            "use_caching",
            Kind.BOOLEAN,
            "accepted for compatibility with Iceberg and ignored: nothing is cached",
            default=False,
        ),
        Parameter(
            "sort_by",
            Kind.STRINGS,
            "partition fields that order the entries first",
            default_text="the spec's own order",
            example="array('day', 'region_bucket')",
        ),
    ),
    columns=columns("rewritten_manifests_count int, added_manifests_count int, snapshot_id bigint"),
    dry_run_columns=columns("rewritten_manifests_count int, added_manifests_count int, snapshot_id bigint"),
    run=run,
    changes_tables=True,
    example="CALL rewrite_manifests('db.events')",
    check=check_fields,
    iceberg=IcebergForm("rewrite_manifests", ("table", "use_caching", "spec_id", "sort_by"), 2),
)
