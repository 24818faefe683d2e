"""`CALL maintain_table(...)`: all maintenance of a table in the safe order, a row a step."""

from __future__ import annotations

from iceberg_compact_sql.actions.context import Context
from iceberg_compact_sql.call.declaration import (
    BRANCH,
    DRY_RUN,
    TABLE,
    Arguments,
    Kind,
    Parameter,
    Procedure,
    Row,
    columns,
)
from iceberg_compact_sql.procedures.expire_snapshots import QUARANTINE


def run(context: Context, arguments: Arguments) -> list[Row]:
    """Compact, merge position deletes, rewrite manifests, expire, remove orphans; stop at the first doubt.

    A step that the table does not allow is told and passed over; one that fails, or whose commit is not known to have
    landed, is told and ends the run: what follows would build on it.
    """
    from iceberg_compact_sql.procedures.maintenance_steps import chosen_steps, run_steps

    opened = context.open_table(arguments["table"])
    return run_steps(context, arguments, chosen_steps(arguments, opened.table.properties), opened.table.properties)


PROCEDURE = Procedure(
    name="maintain_table",
    summary="Compact, merge deletes, rewrite manifests, expire and remove orphans, in the safe order.",
    parameters=(
        TABLE,
        Parameter(
            "steps",
            Kind.STRINGS,
            "which of compact, position_deletes, manifests, expire, orphans; they always run in this order",
            default_text="`iceberg-compact.steps`, else all",
            example="array('compact', 'expire')",
        ),
        Parameter(
            "target",
            Kind.SIZE,
            "compact: size of output files",
            default_text="`iceberg-compact.target`, else as compact_table",
            minimum=1,
        ),
        Parameter("where", Kind.STRING, "compact: which files", default_text="`iceberg-compact.where`, else all"),
        BRANCH,
        Parameter("max_bytes", Kind.SIZE, "compact: stop at so many bytes", default_text="`iceberg-compact.max-bytes`"),
        Parameter(
            "older_than",
            Kind.TIME,
            "expire: snapshots older than this go",
            default_text="`iceberg-compact.expire.older-than`, else as expire_snapshots",
        ),
        Parameter(
            "retain_last",
            Kind.INT,
            "expire: keep at least so many snapshots of each branch",
            default_text="`iceberg-compact.expire.retain-last`, else as expire_snapshots",
            minimum=1,
        ),
        Parameter(
            "orphans_older_than",
            Kind.TIME,
            "orphans: only files last written before this",
            default_text="`iceberg-compact.orphans.older-than`, else 3 days ago",
        ),
        QUARANTINE,
        DRY_RUN,
    ),
    columns=columns("step string, outcome string, detail string, elapsed_ms bigint"),
    dry_run_columns=columns("step string, outcome string, detail string, elapsed_ms bigint"),
    run=run,
    example="CALL maintain_table('db.events', steps => array('compact', 'expire'))",
)
