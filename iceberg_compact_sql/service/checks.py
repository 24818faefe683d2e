"""Checks a request before it becomes a job, by the procedures' own declarations: the same errors as those of a CALL."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from iceberg_compact_sql.actions.context import Context
from iceberg_compact_sql.call.binding import GivenArgument
from iceberg_compact_sql.call.declaration import Arguments, Procedure
from iceberg_compact_sql.call.detect import called_name
from iceberg_compact_sql.call.statements import split_statements
from iceberg_compact_sql.errors import IcebergCompactError, InvalidArgumentError, NotFoundError, did_you_mean
from iceberg_compact_sql.procedures.registry import names
from iceberg_compact_sql.procedures.run_procedure import bind_call, check_call
from iceberg_compact_sql.service.jobs import JobRequest, plain_json

# Arguments that reach files outside the table's own, or that switch a guard off.
_NOT_OVER_HTTP = frozenset(
    {"location", "file_list_view", "equal_schemes", "equal_authorities", "prefix_mismatch_mode", "force"}
)
_ALLOWED_WRITE_OPTIONS = ("write.parquet.", "write.metadata.metrics.")
_COMPACTING = frozenset({"compact_table", "maintain_table", "maintain_tables"})
_COMPACT_STEP = "compact"
READ_ONLY = frozenset({"score_partitions", "score_tables", "history", "advise"})


class NotOverHttpError(IcebergCompactError):
    """The argument exists, and the service does not take it."""

    condition = "ICEBERG_COMPACT_NOT_OVER_HTTP"


def procedure_named(name: str) -> Procedure:
    """The procedure of this name, or under Iceberg's name; raises when there is none, or for `help`."""
    known = {known_as: procedure for known_as, procedure in names().items() if procedure.name != "help"}
    procedure = known.get(name.strip().lower()) if isinstance(name, str) else None
    if procedure is None:
        hint = did_you_mean(str(name), known) or f"Procedures: {', '.join(sorted(known))}."
        raise InvalidArgumentError(f"there is no procedure {name!r}", argument="procedure", value=name, hint=hint)
    return procedure


def read_call(context: Context, text: str) -> tuple[str, str | None, dict[str, Any], str | None]:
    """Procedure, table, other arguments and catalog of one `CALL ...` statement of ours."""
    # Imported late for start-up time: most requests hold no SQL.
    from iceberg_compact_sql.call.grammar import parse_call
    from iceberg_compact_sql.call.literals import TextSettings

    statements = split_statements(text)
    if len(statements) != 1:
        message = f"{len(statements)} statements are given, and a job is exactly one CALL"
        raise InvalidArgumentError(message, argument="call", hint="Submit each statement as a job of its own.")
    name = called_name(statements[0])
    if name is None or (len(name.parts) > 1 and name.parts[-2].lower() != "system") or len(name.parts) > 3:
        hint = "Write CALL compact_table('db.events')."
        raise InvalidArgumentError("only a CALL of our procedures is taken", argument="call", hint=hint)
    procedure = procedure_named(name.procedure)
    settings = TextSettings(time_zone=context.view.time_zone)
    call = parse_call(statements[0], now_ms=context.now_ms, settings=settings)
    if call is None:
        raise InvalidArgumentError("only a CALL of our procedures is taken", argument="call")
    # Bound here for its errors, which name line and column.
    bind_call(procedure, context, call.arguments, call.procedure, qualified=call.qualified)
    positions = procedure.positions(call.procedure, qualified=call.qualified)
    arguments = {
        (given.name or positions[index]).lower(): plain_json(given.value) for index, given in enumerate(call.arguments)
    }
    return procedure.name, arguments.pop("table", None), arguments, call.catalog


def checked_request(
    context: Context, procedure_name: str, table: str | None, arguments: Mapping[str, Any], **facts: Any
) -> JobRequest:
    """Bind and check the arguments with the table as it is now; returns the request with the table's full name.

    Raises the errors that the same CALL raises. `facts` are further fields of the request.
    """
    procedure = procedure_named(procedure_name)
    _refuse_unsafe(procedure, arguments)
    bound = bind_request(context, procedure, table, arguments)
    try:
        check_call(procedure, context, bound)
        full_name = _full_name(context, procedure, bound)
    except IcebergCompactError as error:
        raise error.with_procedure(procedure.name)  # noqa: B904 - the same error, named
    given = {name.lower(): plain_json(value) for name, value in arguments.items() if value is not None}
    return JobRequest(procedure=procedure.name, table=full_name, arguments=given, **facts)


def bind_request(context: Context, procedure: Procedure, table: str | None, arguments: Mapping[str, Any]) -> Arguments:
    """Bind a request as a CALL with named arguments is bound."""
    given = [GivenArgument(value, name) for name, value in arguments.items()]
    if table is not None and "table" in {parameter.name for parameter in procedure.parameters}:
        given.insert(0, GivenArgument(table, "table"))
    elif table is not None and not any(name.lower() == "pattern" for name in arguments):
        given.insert(0, GivenArgument(table, "pattern"))
    return bind_call(procedure, context, given, procedure.name)


def is_read_only(procedure: str, arguments: Mapping[str, Any]) -> bool:
    """Whether the call changes nothing."""
    return procedure in READ_ONLY or str(arguments.get("dry_run", False)).strip().lower() == "true"


def compacts(procedure: str, arguments: Mapping[str, Any]) -> bool:
    """Whether the call may rewrite data files: a compaction, or maintenance with that step."""
    steps = arguments.get("steps")
    has_step = steps is None or _COMPACT_STEP in [str(step).strip().lower() for step in steps]
    return procedure in _COMPACTING and has_step and not is_read_only(procedure, arguments)


def _refuse_unsafe(procedure: Procedure, arguments: Mapping[str, Any]) -> None:
    for name, value in arguments.items():
        if name.lower() in _NOT_OVER_HTTP and value is not None:
            raise NotOverHttpError(
                f"argument '{name}' is not taken over HTTP: it could reach files outside the table",
                procedure=procedure.name,
                argument=name,
                hint="Run this call in a Spark session.",
            )
    options = next((value for name, value in arguments.items() if name.lower() == "options"), None)
    for key in options if isinstance(options, Mapping) else ():
        if str(key).startswith("write.") and not str(key).startswith(_ALLOWED_WRITE_OPTIONS):
            raise NotOverHttpError(
                f"option '{key}' is not taken over HTTP: it could write outside the table",
                procedure=procedure.name,
                argument="options",
                hint=f"Options that are taken: {', '.join(f'{name}*' for name in _ALLOWED_WRITE_OPTIONS)}.",
            )


def _full_name(context: Context, procedure: Procedure, bound: Arguments) -> str | None:
    """The full name of the table; for a procedure over many tables its pattern with the catalog."""
    from iceberg_compact_sql.catalogs.matching_tables import matching_tables
    from iceberg_compact_sql.catalogs.names import parse_table_name, resolve_name, show_name
    from iceberg_compact_sql.catalogs.open_table import known_catalogs

    if "table" in bound:
        if bound["table"] is None:
            return None
        parts = parse_table_name(bound["table"])
        resolved = resolve_name(context.view, parts, known_catalogs(context.view), catalog=context.catalog)
        return show_name((resolved.catalog, *resolved.identifier))
    if "pattern" not in bound:
        return None
    pattern = bound["pattern"]
    matches = matching_tables(context.view, pattern, catalog=context.catalog)
    if not matches:
        raise NotFoundError(f"no table matches the pattern {pattern!r}", argument="pattern", value=pattern)
    first = matches[0].catalog
    return pattern if pattern.split(".")[0].strip("`") == first else f"{first}.{pattern}"
