"""`CALL advise(...)`: what would improve a table, most valuable first."""

from __future__ import annotations

from iceberg_compact_sql.actions.context import Context
from iceberg_compact_sql.call.declaration import TABLE, Arguments, Kind, Parameter, Procedure, Row, columns


def run(context: Context, arguments: Arguments) -> list[Row]:
    """Return one row for each finding; changes nothing."""
    from iceberg_compact_sql.actions.advise import AdviseRequest, advise

    request = AdviseRequest(table=arguments["table"], queries=arguments["queries"], sample=arguments["sample"])
    result = advise(request, context)
    return [
        (finding.topic, finding.severity, finding.finding, finding.action, finding.gain, finding.cost_dollars)
        for finding in result.findings
    ]


PROCEDURE = Procedure(
    name="advise",
    summary="Show what would improve a table, with figures, a statement to run, its gain and its cost.",
    parameters=(
        TABLE,
        Parameter(
            "queries", Kind.STRING, "a Spark event log or a folder of them: advice from the queries that people ran"
        ),
        Parameter(
            "sample",
            Kind.BOOLEAN,
            "with queries: read a sample of rows of the filtered columns; false uses the bounds of files alone",
            default=True,
        ),
    ),
    columns=columns("topic string, severity string, finding string, action string, gain string, cost double"),
    run=run,
    example="CALL advise('db.events')",
)
