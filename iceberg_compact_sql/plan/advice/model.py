"""What rules know about a table, and what they say about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from iceberg_compact_sql.plan.cost import Prices
from iceberg_compact_sql.plan.model import CompactionOptions
from iceberg_compact_sql.plan.partition_scores import JudgedPartition, judge_partitions, scoring_options
from iceberg_compact_sql.table.file_bounds import FileBounds
from iceberg_compact_sql.table.inventory import TableInventory
from iceberg_compact_sql.table.properties import TARGET_FILE_BYTES
from iceberg_compact_sql.units import format_bytes

Severity = Literal["high", "medium", "low"]
_RANKS = {"high": 0, "medium": 1, "low": 2}


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One thing to improve: figures, a statement that improves it, what that gains, and what it costs in dollars.

    `cost_dollars` is None for an action that costs nothing. `weight` orders findings of one severity; it is not shown.
    """

    topic: str
    severity: Severity
    finding: str
    action: str
    gain: str
    cost_dollars: float | None = None
    weight: float = 0.0

    @property
    def order(self) -> tuple[int, float, str, str]:
        """The sort key: most valuable first."""
        return _RANKS[self.severity], -self.weight, self.topic, self.action


@dataclass(frozen=True, kw_only=True)
class TableFacts:
    """A table as the rules see it. `spark_name` is its full name, quoted for SQL."""

    spark_name: str
    metadata: TableMetadata
    inventory: TableInventory
    bounds: FileBounds = field(default_factory=FileBounds)
    metadata_bytes: int | None = None
    target_bytes: int
    now_ms: int
    prices: Prices = field(default_factory=Prices)

    @property
    def properties(self) -> Mapping[str, str]:
        return self.metadata.properties

    @property
    def options(self) -> CompactionOptions:
        return scoring_options(self.target_bytes)

    @cached_property
    def partitions(self) -> list[JudgedPartition]:
        """Every partition with its figures and the files that a compaction would select."""
        return judge_partitions(self.inventory, self.options)

    @cached_property
    def snapshots_by_time(self) -> list[Snapshot]:
        return sorted(self.metadata.snapshots, key=lambda snapshot: snapshot.timestamp_ms)

    @property
    def data_bytes(self) -> int:
        return sum(file.size_bytes for file in self.inventory.files)

    def call(self, procedure: str, arguments: str = "") -> str:
        """Return a CALL for this table that can be pasted into `spark.sql` or a SQL file."""
        name = sql_text(self.spark_name.replace("`", "") if _is_plain(self.spark_name) else self.spark_name)
        return f"CALL {procedure}({name}{', ' + arguments if arguments else ''})"

    def compact(self, arguments: str = "") -> str:
        """Return a CALL of compact_table with the target by which this table is judged."""
        parts = [arguments] if arguments else []
        if self.target_bytes != TARGET_FILE_BYTES.of(self.properties):
            parts.insert(0, f"target => '{self.target_bytes}'")
        return self.call("compact_table", ", ".join(parts))

    def set_properties(self, properties: Mapping[str, str]) -> str:
        """Return an ALTER TABLE that sets table properties."""
        pairs = ", ".join(f"{sql_text(key)} = {sql_text(value)}" for key, value in properties.items())
        return f"ALTER TABLE {self.spark_name} SET TBLPROPERTIES ({pairs})"


def sql_text(text: str) -> str:
    """Return a string literal of Spark SQL.

    >>> sql_text("it's")
    "'it\\\\'s'"
    """
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def quoted(name: str) -> str:
    """Return a column name in backticks."""
    return "`" + name.replace("`", "``") + "`"


def share_text(share: float) -> str:
    return f"{share:.0%}" if share >= 0.01 or share == 0 else f"{share:.1%}"


def average_text(total_bytes: int, count: int) -> str:
    return format_bytes(total_bytes / count) if count else "0 B"


def _is_plain(quoted_name: str) -> bool:
    inner = quoted_name.strip("`").split("`.`")
    return all(part.replace("_", "a").isalnum() for part in inner)
