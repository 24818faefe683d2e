"""`CALL help(...)`: list the procedures, explain the arguments of one, or show a document."""

from __future__ import annotations

from iceberg_compact_sql.actions.context import Context
from iceberg_compact_sql.call.declaration import Arguments, Kind, Parameter, Procedure, Row, columns
from iceberg_compact_sql.errors import NotFoundError, did_you_mean
from iceberg_compact_sql.report.documents import TOPICS, read_topic


def run(context: Context, arguments: Arguments) -> list[Row]:
    """Return rows for every procedure, for every argument of one, or for every section of a document; read no table."""
    from iceberg_compact_sql.procedures.registry import names, procedures

    topic = arguments["procedure"]
    if topic is None:
        return [(p.name, "", "", "", p.summary, p.example) for p in procedures().values()]
    name = topic.strip().lower()
    if name in TOPICS:
        return [(name, heading, "", "", text, "") for heading, text in read_topic(name).sections()]
    procedure = names().get(name)
    if procedure is None:
        raise NotFoundError(
            f"there is no procedure '{topic}'",
            argument="procedure",
            value=topic,
            hint=did_you_mean(topic, [*names(), *TOPICS])
            or f"CALL help() lists the procedures. There are also documents: {', '.join(TOPICS)}.",
        )
    return [argument_row(procedure, parameter) for parameter in procedure.parameters]


def argument_row(procedure: Procedure, parameter: Parameter) -> Row:
    """Return what help says about one argument."""
    example = parameter.example or procedure.example
    shown = (parameter.shown_kind, parameter.shown_default, parameter.shown_meaning)
    return (procedure.name, parameter.name, *shown, example)


PROCEDURE = Procedure(
    name="help",
    summary="List the procedures, explain the arguments of one of them, or show a document.",
    parameters=(
        Parameter("procedure", Kind.STRING, "a procedure, or a topic of the documents", example="'compact_table'"),
    ),
    columns=columns("procedure string, argument string, type string, default string, meaning string, example string"),
    run=run,
    example="CALL help('compact_table')",
)
