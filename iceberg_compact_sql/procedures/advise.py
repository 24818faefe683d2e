"""`CALL advise(...)`: what would improve a table, most valuable first."""

from __future__ import annotations

from iceberg_compact_sql.actions.context import Context
from iceberg_compact_sql.call.declaration import TABLE, Arguments, Procedure, Row, columns


def run(context: Context, arguments: Arguments) -> list[Row]:
    """Return one row for each finding; reads only metadata and changes nothing."""
    from iceberg_compact_sql.actions.advise import AdviseRequest, advise

    result = advise(AdviseRequest(table=arguments["table"]), context)
    return [
        (finding.topic, finding.severity, finding.finding, finding.action, finding.gain, finding.cost_dollars)
        for finding in result.findings
    ]


PROCEDURE = Procedure(
    name="advise",
    summary="Show what would improve a table, with figures, a statement to run, its gain and its cost.",
    parameters=(TABLE,),
    columns=columns("topic string, severity string, finding string, action string, gain string, cost double"),
    run=run,
    example="CALL advise('db.events')",
)
