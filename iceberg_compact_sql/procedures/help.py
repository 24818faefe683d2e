"""`CALL help()` and `CALL help('compact_table')`: the procedures, and the arguments of one."""

from __future__ import annotations

from iceberg_compact_sql.actions.context import Context
from iceberg_compact_sql.call.declaration import Arguments, Kind, Parameter, Procedure, Row, columns
from iceberg_compact_sql.errors import NotFoundError, did_you_mean


def run(context: Context, arguments: Arguments) -> list[Row]:
    """Rows for every procedure, or for every argument of one; reads no table."""
    from iceberg_compact_sql.procedures.registry import names, procedures

    wanted = arguments["procedure"]
    if wanted is None:
        return [(p.name, "", "", "", p.summary, p.example) for p in procedures().values()]
    procedure = names().get(wanted.strip().lower())
    if procedure is None:
        raise NotFoundError(
            f"no procedure '{wanted}'",
            argument="procedure",
            value=wanted,
            hint=did_you_mean(wanted, names()) or "CALL help() lists them.",
        )
    return [argument_row(procedure, parameter) for parameter in procedure.parameters]


def argument_row(procedure: Procedure, parameter: Parameter) -> Row:
    """What help says of one argument."""
    example = parameter.example or procedure.example
    return (procedure.name, parameter.name, parameter.shown_kind, parameter.shown_default, parameter.meaning, example)


PROCEDURE = Procedure(
    name="help",
    summary="List the procedures, or the arguments of one of them.",
    parameters=(Parameter("procedure", Kind.STRING, "the procedure to explain", example="'compact_table'"),),
    columns=columns("procedure string, argument string, type string, default string, meaning string, example string"),
    run=run,
    example="CALL help('compact_table')",
)
