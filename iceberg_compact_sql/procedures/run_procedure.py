"""Runs a call of a procedure: binds arguments, sends events to progress and logs, adds the name to errors."""

from __future__ import annotations

from collections.abc import Sequence

from iceberg_compact_sql.actions.context import Context
from iceberg_compact_sql.call.binding import GivenArgument, bind
from iceberg_compact_sql.call.declaration import Arguments, Procedure, Row
from iceberg_compact_sql.errors import IcebergCompactError
from iceberg_compact_sql.events import listening
from iceberg_compact_sql.procedures.recording.observe_calls import measured, traced
from iceberg_compact_sql.procedures.recording.record_history import recorded
from iceberg_compact_sql.redaction import redact
from iceberg_compact_sql.report.log_events import log_event
from iceberg_compact_sql.report.progress import shown_progress


def bind_call(
    procedure: Procedure, context: Context, given: Sequence[GivenArgument], called_as: str, *, qualified: bool = False
) -> Arguments:
    """Return the bound arguments of a call; changes nothing."""
    try:
        return bind(
            procedure,
            given,
            now_ms=context.now_ms,
            time_zone=lambda: context.view.time_zone,
            called_as=called_as,
            qualified=qualified,
        )
    except IcebergCompactError as error:
        raise error.with_procedure(called_as)  # noqa: B904 - the same error, named


def check_call(procedure: Procedure, context: Context, arguments: Arguments) -> None:
    """Raise when the bound arguments cannot be used with their table; runs nothing.

    Checks what the procedure itself checks, and that the table has the branch, the snapshots and the columns that the
    arguments name. A table that is not known yet is not checked.
    """
    # Imported late: pyiceberg is not needed to start a session.
    from iceberg_compact_sql.reclaim.retention import refuse_unknown_ids
    from iceberg_compact_sql.table.inventory import branch_head

    if procedure.check is not None:
        procedure.check(context, arguments)
    if arguments.get("table") is None:
        return
    table = context.open_table(arguments["table"]).table
    if "branch" in arguments:
        branch_head(table.metadata, arguments["branch"])
    if arguments.get("snapshot_ids") and not arguments.iceberg_form:
        refuse_unknown_ids(table.metadata, arguments["snapshot_ids"])
    context.read_where(arguments.get("where"), table)


def run_procedure(procedure: Procedure, context: Context, arguments: Arguments, called_as: str) -> list[Row]:
    """Run a bound call once; returns rows with the columns of `procedure.result_columns(arguments)`."""
    try:
        with (
            listening(log_event),
            shown_progress(lambda: context.view.setting("progress")),
            recorded(procedure, context, arguments),
            measured(procedure, context, arguments),
            traced(),
        ):
            rows = procedure.run(context, arguments)
    except IcebergCompactError as error:
        raise error.with_procedure(called_as)  # noqa: B904 - the same error, named
    except OSError as error:
        # Only reads before any change end here: a commit explains its own errors.
        message = f"a file cannot be reached: {' '.join(redact(error).split())[:500]}"
        hint = "Check that the store is up and the settings of the catalog."
        raise IcebergCompactError(message, hint=hint).with_procedure(called_as) from None
    width = len(procedure.result_columns(arguments))
    return [row[:width] for row in rows]
