"""`CALL remove_orphans(...)`: files that nothing in the table's metadata names."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from iceberg_compact_sql.actions.context import Context
from iceberg_compact_sql.call.declaration import (
    DRY_RUN,
    TABLE,
    Alias,
    Arguments,
    Kind,
    Parameter,
    Procedure,
    Row,
    columns,
)
from iceberg_compact_sql.errors import InvalidArgumentError
from iceberg_compact_sql.procedures.expire_snapshots import MAX_CONCURRENT_DELETES, QUARANTINE, STREAM_RESULTS

if TYPE_CHECKING:
    from iceberg_compact_sql.reclaim.orphans import OrphanRequest
    from iceberg_compact_sql.storage.stores import StoredFile


def run(context: Context, arguments: Arguments) -> list[Row]:
    """List what the table owns, and delete the old files that no snapshot, branch, tag or statistics needs.

    The table itself is not changed. Each file is checked again right before it goes; doubt is an error.
    """
    from iceberg_compact_sql.reclaim.orphans import OrphanSearch

    request = checked_request(context, arguments)
    search = OrphanSearch(context.open_table(arguments["table"]).table, request, context.spark)
    view = arguments["file_list_view"]
    plan = search.find(None if view is None else _listed(context, view))
    if arguments["dry_run"]:
        return [_row(file, False) for file in plan.orphans]
    return [_row(file, gone) for file, gone in search.delete(plan)]


def checked_request(context: Context, arguments: Arguments) -> OrphanRequest:
    """What the arguments ask for; refused where files of a write under way would count as orphans."""
    from iceberg_compact_sql.reclaim.orphans import OrphanRequest

    return OrphanRequest(
        now_ms=context.now_ms,
        older_than_ms=arguments["older_than"],
        location=arguments["location"],
        equal_schemes=arguments["equal_schemes"] or {},
        equal_authorities=arguments["equal_authorities"] or {},
        prefix_mismatch_mode=arguments["prefix_mismatch_mode"],
        max_share=arguments["max_share"],
        force=arguments["force"],
        workers=arguments["max_concurrent_deletes"],
        quarantine_ms=arguments["quarantine"],
    )


def _row(file: StoredFile, deleted: bool) -> Row:
    moment = None
    if file.modified_ms is not None:
        epoch = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)
        moment = epoch + dt.timedelta(milliseconds=file.modified_ms)
    return file.path, file.size_bytes, moment, deleted


def _listed(context: Context, view: str) -> Iterator[tuple[str, int | None]]:
    """Paths and times of the user's own view, in epoch milliseconds whatever the session's time zone."""
    if context.spark is None:
        raise InvalidArgumentError(
            "file_list_view names a view of a session, which a table function does not have",
            argument="file_list_view",
            value=view,
            hint="Use CALL remove_orphans(..., dry_run => true).",
        )
    try:
        frame: Any = context.spark.table(view)
        types = dict(frame.dtypes)
    except Exception as error:
        raise InvalidArgumentError(
            f"file_list_view names '{view}', which the session cannot read ({type(error).__name__})",
            argument="file_list_view",
            value=view,
            hint="Name a view or table of this session.",
        ) from error
    path = next((name for name in ("file_path", "path") if types.get(name) == "string"), None)
    if path is None or types.get("last_modified") not in ("timestamp", "timestamp_ntz"):
        raise InvalidArgumentError(
            f"view {view} has the columns {', '.join(f'{n} {t}' for n, t in frame.dtypes)}",
            argument="file_list_view",
            value=view,
            hint="It needs file_path string and last_modified timestamp.",
        )
    moment = "unix_millis(CAST(last_modified AS TIMESTAMP))"
    for row in frame.selectExpr(f"{path} AS path", f"{moment} AS modified_ms").toLocalIterator():
        if row["path"] is not None:
            yield row["path"], row["modified_ms"]


PROCEDURE = Procedure(
    name="remove_orphans",
    summary="Delete files under the table's location that nothing in its metadata names.",
    parameters=(
        TABLE,
        Parameter(
            "older_than",
            Kind.TIME,
            "only files last written before this; at least 24 hours ago",
            default_text="3 days ago",
            example="'7d'",
        ),
        Parameter(
            "location",
            Kind.STRING,
            "look only here, inside the table's location, `write.data.path` or `write.metadata.path`",
            default_text="the table's location",
        ),
        DRY_RUN,
        MAX_CONCURRENT_DELETES,
        Parameter(
            "file_list_view",
            Kind.STRING,
            "a view with file_path and last_modified to take the files from, not a listing",
        ),
        Parameter(
            "equal_schemes", Kind.MAP, "schemes that mean the same", default_text="map('s3a,s3n', 's3')", default={}
        ),
        Parameter("equal_authorities", Kind.MAP, "hosts or buckets that mean the same", default={}),
        Parameter(
            "prefix_mismatch_mode",
            Kind.CHOICE,
            "what to do with a file that the metadata names under another scheme or authority",
            default="ERROR",
            choices=("ERROR", "IGNORE", "DELETE"),
        ),
        Parameter("prefix_listing", Kind.BOOLEAN, "accepted for Iceberg's sake; listing is by prefix", default=True),
        STREAM_RESULTS,
        Parameter(
            "max_share",
            Kind.DOUBLE,
            "refuse when more than this share of all files would go",
            default=0.5,
            minimum=0,
            maximum=1,
        ),
        Parameter("force", Kind.BOOLEAN, "delete also when max_share is passed", default=False),
        QUARANTINE,
    ),
    columns=columns("orphan_file_location string, bytes bigint, last_modified_at timestamp, deleted boolean"),
    dry_run_columns=columns("orphan_file_location string, bytes bigint, last_modified_at timestamp, deleted boolean"),
    run=run,
    example="CALL remove_orphans('db.events', older_than => '7d', dry_run => true)",
    aliases=(
        Alias(
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
        ),
    ),
    table_function=True,
    check=checked_request,
)
