"""The work of `remove_orphans`: finds and deletes files that the table's metadata does not name."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from iceberg_compact_sql.actions.context import Context
from iceberg_compact_sql.actions.reporting import reported
from iceberg_compact_sql.catalogs.session_view import SETTING_PREFIX
from iceberg_compact_sql.engine.cluster import driver_files_setting
from iceberg_compact_sql.errors import IcebergError, IcebergKind, InvalidArgumentError
from iceberg_compact_sql.reclaim.cluster_search import DEFAULT_DRIVER_FILES
from iceberg_compact_sql.reclaim.orphans import OrphanRequest, OrphanSearch
from iceberg_compact_sql.storage.protocol import StoredFile


@dataclass(frozen=True, kw_only=True)
class OrphansRequest:
    """One removal of orphans in one table's folders. None means the default."""

    table: str
    older_than_ms: int | None = None
    location: str | None = None
    file_list_view: str | None = None
    equal_schemes: Mapping[str, str] = field(default_factory=dict)
    equal_authorities: Mapping[str, str] = field(default_factory=dict)
    prefix_mismatch_mode: str = "ERROR"
    max_share: float = 0.5
    force: bool = False
    max_concurrent_deletes: int | None = None
    quarantine_ms: int | None = None


@dataclass(frozen=True)
class Orphan:
    """A file that no metadata names, and whether it was deleted."""

    path: str
    size_bytes: int
    modified_ms: int | None
    deleted: bool


@dataclass(frozen=True)
class OrphansResult:
    """The orphans that were found, sorted by path; `ran` is False for a plan, which deletes nothing."""

    files: tuple[Orphan, ...]
    ran: bool = True

    @property
    def deleted(self) -> tuple[Orphan, ...]:
        return tuple(file for file in self.files if file.deleted)


def plan_orphans(request: OrphansRequest, context: Context) -> OrphansResult:
    """Return what `remove_orphans` would delete now; changes nothing."""
    with context.run(lambda: (None, "Nothing was changed.")):
        plan = _search(request, context).find(_given_files(request, context))
        return OrphansResult(tuple(_orphan(file, False) for file in plan.orphans), ran=False)


def remove_orphans(request: OrphansRequest, context: Context) -> OrphansResult:
    """List the table's folders, and delete old files that no snapshot, branch, tag or statistics file needs.

    Does not change the table. Checks each file again right before it is deleted, and raises in doubt.
    """
    checked: list[Orphan] = []

    def done() -> tuple[OrphansResult, str]:
        result = OrphansResult(tuple(checked))
        return result, f"{len(result.deleted)} file(s) are deleted; the table is as it was."

    def facts() -> dict[str, Any]:
        deleted = OrphansResult(tuple(checked)).deleted
        return {"deleted_files": len(deleted), "freed_bytes": sum(file.size_bytes for file in deleted)}

    with reported(context, "remove_orphans", request.table, facts), context.run(done):
        search = _search(request, context)
        plan = search.find(_given_files(request, context))
        for file, deleted in search.delete(plan):
            checked.append(_orphan(file, deleted))
        return OrphansResult(tuple(checked))


def check_orphans(request: OrphansRequest, context: Context) -> OrphanRequest:
    """Return the request of the search; refuse values with which files of a running write would count as orphans."""
    driver_files = driver_files_setting(f"{SETTING_PREFIX}driver_files", context.view.setting("driver_files"))
    return OrphanRequest(
        now_ms=context.now_ms,
        older_than_ms=request.older_than_ms,
        location=request.location,
        equal_schemes=request.equal_schemes,
        equal_authorities=request.equal_authorities,
        prefix_mismatch_mode=request.prefix_mismatch_mode,
        max_share=request.max_share,
        force=request.force,
        workers=request.max_concurrent_deletes,
        quarantine_ms=request.quarantine_ms,
        ignored_tables=context.ignored_tables,
        driver_files=DEFAULT_DRIVER_FILES if driver_files is None else driver_files,
    )


def _search(request: OrphansRequest, context: Context) -> OrphanSearch:
    checked = check_orphans(request, context)
    return OrphanSearch(context.open_table(request.table).table, checked, context.workers)


def _orphan(file: StoredFile, deleted: bool) -> Orphan:
    return Orphan(file.path, file.size_bytes, file.modified_ms, deleted)


def _given_files(request: OrphansRequest, context: Context) -> Iterator[tuple[str, int | None]] | None:
    return None if request.file_list_view is None else _files_of_view(context, request.file_list_view)


def _files_of_view(context: Context, view: str) -> Iterator[tuple[str, int | None]]:
    """Yield paths and times of the user's view, in epoch milliseconds for any session time zone."""
    spark = context.needed_spark()
    if spark is None:
        raise InvalidArgumentError(
            "file_list_view names a view of a session, which a table function does not have",
            argument="file_list_view",
            value=view,
            hint="Use CALL remove_orphans(..., dry_run => true).",
        )
    try:
        frame: Any = spark.table(view)
        types = dict(frame.dtypes)
    except Exception as error:
        raise InvalidArgumentError(
            f"file_list_view names '{view}', which the session cannot read ({type(error).__name__})",
            argument="file_list_view",
            value=view,
            hint="Name a view or table of this session.",
            iceberg=_unreadable_view(error),
        ) from error
    path = next((name for name in ("file_path", "path") if types.get(name) == "string"), None)
    if path is None or types.get("last_modified") not in ("timestamp", "timestamp_ntz"):
        raise InvalidArgumentError(
            f"view {view} has the columns {', '.join(f'{n} {t}' for n, t in frame.dtypes)}",
            argument="file_list_view",
            value=view,
            hint="It needs file_path string and last_modified timestamp.",
            iceberg=_unusable_view(frame),
        )
    moment = "unix_millis(CAST(last_modified AS TIMESTAMP))"
    for row in frame.selectExpr(f"{path} AS path", f"{moment} AS modified_ms").toLocalIterator():
        if row["path"] is not None:
            yield row["path"], row["modified_ms"]


def _unreadable_view(error: Exception) -> IcebergError | None:
    """Spark's own error for a view that does not exist; None for other failures."""
    spark_error = re.match(r"\[(TABLE_OR_VIEW_NOT_FOUND)\] (.*?) SQLSTATE: (\w+)", str(error), re.DOTALL)
    return spark_error and IcebergError(spark_error[2], IcebergKind.ANALYSIS, spark_error[1], spark_error[3])


def _unusable_view(frame: Any) -> IcebergError | None:
    """Iceberg's error for a view without the columns that it needs, or with other types."""
    types = {field.name: type(field.dataType).__name__ for field in frame.schema.fields}
    for column, accepted, described in (
        ("file_path", ("StringType",), "a string"),
        ("last_modified", ("TimestampType",), "a timestamp"),
    ):
        if column not in types:
            names = ", ".join(f"`{name}`" for name in types)
            message = f"No such struct field `{column}` in {names}."
            return IcebergError(message, IcebergKind.ILLEGAL_ARGUMENT, "FIELD_NOT_FOUND", "42704")
        if types[column] not in accepted:
            return IcebergError(f"Invalid {column} column: {types[column]} is not {described}")
    return None
