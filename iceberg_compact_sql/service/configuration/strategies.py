"""Strategies by name: what each one means as arguments of compact_table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from iceberg_compact_sql.errors import InvalidArgumentError, did_you_mean
from iceberg_compact_sql.plan.layouts.order import STRATEGY_NAMES

OWN = ("small_files", "delete_files", "time_series", "full")
# Names that users' files have for arguments.
OLD_NAMES = {"target_file_size": "target", "partition_filter": "where"}


@dataclass(frozen=True)
class Strategy:
    """What a strategy means in this service."""

    enabled: bool = True
    threshold: Any = None
    target_size: Any = None
    fragment_ratio_threshold: float | None = None
    idle: Any = None


def strategy_name(text: str) -> str:
    """The name with underscores; raises when there is no such strategy."""
    name = text.strip().lower().replace("-", "_")
    known = (*OWN, *STRATEGY_NAMES)
    if name not in known:
        hint = did_you_mean(name, known) or f"Strategies: {', '.join(known)}."
        raise InvalidArgumentError(f"there is no strategy {text!r}", argument="strategy", value=text, hint=hint)
    return name


def strategy_arguments(name: str | None, configured: Mapping[str, Strategy], *, target: Any = None) -> dict[str, Any]:
    """The arguments of compact_table for a strategy; without a name, of all enabled ones in one call.

    `target` is the configured target size of every table.
    """
    base = {} if target is None else {"target": target}
    if name is not None:
        own_name = strategy_name(name)
        strategy = configured.get(own_name, Strategy())
        if not strategy.enabled:
            raise InvalidArgumentError(
                f"strategy '{own_name}' is not enabled",
                argument="strategy",
                value=name,
                hint=f"Set compaction.strategies.{own_name}.enabled, or choose another one.",
            )
        return base | _arguments(own_name, strategy, alone=True)
    arguments = dict(base)
    for own_name, strategy in configured.items():
        if strategy.enabled:
            arguments |= _arguments(own_name, strategy, alone=len(configured) == 1)
    return arguments


def renamed(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options with the names that the procedure has."""
    return {OLD_NAMES.get(name, name): value for name, value in options.items()}


def _arguments(name: str, strategy: Strategy, *, alone: bool) -> dict[str, Any]:
    values: dict[str, Any]
    if name == "small_files":
        values = {"min_file_size": strategy.threshold, "target": strategy.target_size}
    elif name == "delete_files":
        ratio = strategy.fragment_ratio_threshold
        ratio = strategy.threshold if ratio is None else ratio
        # Beside other strategies the ratio would keep them from the other partitions.
        values = {"delete_file_threshold": 1, "min_fragment_ratio": ratio if alone else None}
    elif name == "time_series":
        idle = "1h" if strategy.idle is None else strategy.idle
        values = {"idle": idle, "job_order": "score-desc", "partial_progress": True, "target": strategy.target_size}
    elif name == "full":
        values = {"rewrite_all": True, "target": strategy.target_size}
    else:
        values = {"strategy": name, "target": strategy.target_size}
    return {key: value for key, value in values.items() if value is not None}
