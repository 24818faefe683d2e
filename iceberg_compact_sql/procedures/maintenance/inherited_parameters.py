"""Arguments of the steps that maintain_table takes under the same name and with the same meaning."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from iceberg_compact_sql.call.declaration import Parameter
from iceberg_compact_sql.procedures.compact_parameters import PARAMETERS as COMPACT_PARAMETERS
from iceberg_compact_sql.procedures.expire_snapshots import PROCEDURE as EXPIRE_SNAPSHOTS
from iceberg_compact_sql.procedures.remove_orphans import PROCEDURE as REMOVE_ORPHANS
from iceberg_compact_sql.procedures.rewrite_manifests import PROCEDURE as REWRITE_MANIFESTS

# maintain_table declares these itself, because their name or their default differs.
_OWN = frozenset(
    {
        "table",
        "target",
        "where",
        "branch",
        "strategy",
        "sort_order",
        "max_bytes",
        "older_than",
        "retain_last",
        "quarantine",
        "dry_run",
    }
)
# They name single things of one call, or are accepted for Iceberg only.
_LEFT_OUT = frozenset(
    ("snapshot_ids", "location", "file_list_view", "prefix_listing", "stream_results", "use_caching", "spec_id")
)
_STEP_PARAMETERS: Mapping[str, tuple[Parameter, ...]] = {
    "compact": COMPACT_PARAMETERS,
    "manifests": REWRITE_MANIFESTS.parameters,
    "expire": EXPIRE_SNAPSHOTS.parameters,
    "orphans": REMOVE_ORPHANS.parameters,
}


def inherited_names(step: str) -> frozenset[str]:
    """Return the names of a step's arguments that maintain_table passes on as they are."""
    return frozenset(parameter.name for parameter in _STEP_PARAMETERS[step]) - _OWN - _LEFT_OUT


def inherited_parameters() -> tuple[Parameter, ...]:
    """Return the declarations of all inherited arguments; each meaning begins with the steps that take it."""
    return tuple(_inherited())


def _inherited() -> Iterator[Parameter]:
    declared: dict[str, Parameter] = {}
    steps: dict[str, list[str]] = {}
    for step, parameters in _STEP_PARAMETERS.items():
        for parameter in parameters:
            if parameter.name in inherited_names(step):
                declared.setdefault(parameter.name, parameter)
                steps.setdefault(parameter.name, []).append(step)
    for name, parameter in declared.items():
        yield replace(parameter, meaning=f"{', '.join(steps[name])}: {parameter.meaning}")
