"""All procedures by name: the one list that SQL, Python and the command line share."""

from __future__ import annotations

from functools import cache
from importlib import import_module

from iceberg_compact_sql.call.declaration import Procedure

# Module names, in the order in which help lists them.
MODULES = (
    "compact_table",
    "score_partitions",
    "score_tables",
    "advise",
    "expire_snapshots",
    "remove_orphans",
    "rewrite_manifests",
    "rewrite_position_deletes",
    "maintain_table",
    "maintain_tables",
    "restore_quarantine",
    "history",
    "help",
)


@cache
def procedures() -> dict[str, Procedure]:
    """Return all procedures by their own name."""
    loaded = (import_module(f"iceberg_compact_sql.procedures.{module}").PROCEDURE for module in MODULES)
    return {procedure.name: procedure for procedure in loaded}


@cache
def names() -> dict[str, Procedure]:
    """Return all procedures by every name that a CALL may use, including Iceberg's names."""
    own = dict(procedures())
    return own | {procedure.iceberg.name: procedure for procedure in own.values() if procedure.iceberg is not None}


@cache
def iceberg_names() -> frozenset[str]:
    """Return the names of Iceberg's procedures that this package also answers."""
    return frozenset(procedure.iceberg.name for procedure in procedures().values() if procedure.iceberg is not None)
