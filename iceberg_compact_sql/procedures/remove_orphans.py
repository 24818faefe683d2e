"""`CALL remove_orphans(...)`: delete files that the table's metadata does not name."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from iceberg_compact_sql.actions.context import Context
from iceberg_compact_sql.call.declaration import (
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
from iceberg_compact_sql.procedures.expire_snapshots import MAX_CONCURRENT_DELETES, QUARANTINE, STREAM_RESULTS
from iceberg_compact_sql.storage.locations import hadoop_spelling
from iceberg_compact_sql.units import utc_time

if TYPE_CHECKING:
    from iceberg_compact_sql.actions.orphans import OrphansRequest, OrphansResult


def request_of(arguments: Arguments) -> OrphansRequest:
    """Return the request of the action from the bound arguments."""
    from iceberg_compact_sql.actions.orphans import OrphansRequest

    return OrphansRequest(
        table=arguments["table"],
        older_than_ms=arguments["older_than"],
        location=arguments["location"],
        file_list_view=arguments["file_list_view"],
        equal_schemes=arguments["equal_schemes"] or {},
        equal_authorities=arguments["equal_authorities"] or {},
        prefix_mismatch_mode=arguments["prefix_mismatch_mode"],
        max_share=arguments["max_share"],
        force=arguments["force"],
        max_concurrent_deletes=arguments["max_concurrent_deletes"],
        quarantine_ms=arguments["quarantine"],
    )


def rows_of(result: OrphansResult, *, hadoop_names: bool = False) -> list[Row]:
    """Return one row for each orphan; `hadoop_names` spells paths as Hadoop does."""
    shown: Callable[[str], str] = hadoop_spelling if hadoop_names else str
    return [(shown(file.path), file.size_bytes, utc_time(file.modified_ms), file.deleted) for file in result.files]


def run(context: Context, arguments: Arguments) -> list[Row]:
    """Delete old files that nothing in the table's metadata names, or list them in a dry run."""
    from iceberg_compact_sql.actions import orphans

    request = request_of(arguments)
    result = (orphans.plan_orphans if arguments["dry_run"] else orphans.remove_orphans)(request, context)
    # Iceberg shows the path of its own listing: in Hadoop's spelling, or as in the user's view.
    return rows_of(result, hadoop_names=arguments.iceberg_form and request.file_list_view is None)


def check(context: Context, arguments: Arguments) -> None:
    """Refuse an `older_than` so recent that files of a running write would count as orphans."""
    from iceberg_compact_sql.actions.orphans import check_orphans

    check_orphans(request_of(arguments), context)


PROCEDURE = Procedure(
    name="remove_orphans",
    summary="Delete files under the table's location that its metadata does not name.",
    parameters=(
        TABLE,
        Parameter(
            "older_than",
            Kind.TIME,
            "delete only files that were last written before this; at least 24 hours ago",
            default_text="3 days ago",
            example="'7d'",
        ),
        Parameter(
            "location",
            Kind.STRING,
            "search only this folder, inside the table's location, `write.data.path` or `write.metadata.path`",
            default_text="the table's location",
        ),
        DRY_RUN,
        MAX_CONCURRENT_DELETES,
        Parameter(
            "file_list_view",
            Kind.STRING,
            "a view with file_path and last_modified that replaces the listing",
        ),
        Parameter(
            "equal_schemes",
            Kind.MAP,
            "URI schemes that mean the same store",
            default_text="map('s3a,s3n', 's3')",
            default={},
        ),
        Parameter("equal_authorities", Kind.MAP, "hosts or buckets that mean the same store", default={}),
        Parameter(
            "prefix_mismatch_mode",
            Kind.CHOICE,
            "what to do with a file that the metadata names under another scheme or authority",
            default="ERROR",
            choices=("ERROR", "IGNORE", "DELETE"),
        ),
        Parameter(
            "prefix_listing",
            Kind.BOOLEAN,
            "accepted for compatibility with Iceberg and ignored: listing is always by prefix",
            default=True,
        ),
        STREAM_RESULTS,
        Parameter(
            "max_share",
            Kind.DOUBLE,
            "refuse when more than this share of all files would be deleted",
            default=0.5,
            minimum=0,
            maximum=1,
        ),
        Parameter("force", Kind.BOOLEAN, "delete even when max_share is exceeded", default=False),
        QUARANTINE,
    ),
    columns=columns("orphan_file_location string, bytes bigint, last_modified_at timestamp, deleted boolean"),
    dry_run_columns=columns("orphan_file_location string, bytes bigint, last_modified_at timestamp, deleted boolean"),
    run=run,
    changes_tables=True,
    example="CALL remove_orphans('db.events', older_than => '7d', dry_run => true)",
    iceberg=IcebergForm(
        "remove_orphan_files",
        (
            "table",
            "older_than",
            "location",
            "dry_run",
            "max_concurrent_deletes",
            "file_list_view",
            "equal_schemes",
            "equal_authorities",
            "prefix_mismatch_mode",
            "prefix_listing",
            "stream_results",
        ),
        1,
    ),
    table_function=True,
    check=check,
)
