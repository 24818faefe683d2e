"""Every procedure by name; the one list that all doors share."""

from __future__ import annotations

from functools import cache
from importlib import import_module

from iceberg_compact_sql.call.declaration import Procedure

# Module names, in the order in which help lists them.
MODULES = (
    "compact_table",
    "score_partitions",
    "expire_snapshots",
    "remove_orphans",
    "rewrite_manifests",
    "rewrite_position_deletes",
    "maintain_table",
    "restore_quarantine",
    "help",
)


@cache
def procedures() -> dict[str, Procedure]:
    """All procedures by their own name."""
    loaded = (import_module(f"iceberg_compact_sql.procedures.{module}").PROCEDURE for module in MODULES)
    return {procedure.name: procedure for procedure in loaded}


@cache
def names() -> dict[str, Procedure]:
    """All procedures by every name that a CALL may use, Iceberg's own names included."""
    own = dict(procedures())
    return own | {alias.name: procedure for procedure in own.values() for alias in procedure.aliases}
