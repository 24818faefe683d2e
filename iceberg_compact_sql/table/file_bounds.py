"""The bounds of columns in the live data files of a branch head, decoded only for the columns that are asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyiceberg.manifest import ManifestContent
from pyiceberg.table import Table
from pyiceberg.types import IcebergType

from iceberg_compact_sql.events import stop_if_cancelled
from iceberg_compact_sql.pyiceberg_internals import manifest_columns as record
from iceberg_compact_sql.table.damaged_metadata import stop_if_damaged
from iceberg_compact_sql.table.decode_bound import decode_bound
from iceberg_compact_sql.table.inventory import branch_head, live_manifests

Partition = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class ManifestSize:
    """One live manifest: its bytes, and whether it lists deletes."""

    size_bytes: int
    deletes: bool = False


@dataclass(frozen=True)
class FileStatistics:
    """Statistics of one data file, still in Iceberg's single-value encoding."""

    path: str
    spec_id: int
    partition: Partition
    size_bytes: int
    rows: int
    value_counts: Mapping[int, int] = field(default_factory=dict)
    null_counts: Mapping[int, int] = field(default_factory=dict)
    lower: Mapping[int, bytes] = field(default_factory=dict)
    upper: Mapping[int, bytes] = field(default_factory=dict)

    def only_nulls(self, field_id: int) -> bool:
        """Whether the statistics prove that a column holds no value: then it has no bounds either."""
        values, nulls = self.value_counts.get(field_id), self.null_counts.get(field_id)
        return values is not None and nulls is not None and values == nulls


@dataclass(frozen=True)
class FileBounds:
    """The data files of a branch head with their statistics, and the manifests that list them."""

    files: Sequence[FileStatistics] = ()
    manifests: Sequence[ManifestSize] = ()

    def of(self, field_id: int, field_type: IcebergType) -> list[tuple[Any, Any] | None]:
        """Return the bounds of a column in each file, in order; None for a file where one of them is unknown."""
        bounds: list[tuple[Any, Any] | None] = []
        for file in self.files:
            low = decode_bound(field_type, file.lower.get(field_id))
            high = decode_bound(field_type, file.upper.get(field_id))
            # NaN is not a bound that anything can be compared with.
            known = low is not None and high is not None and low == low and high == high
            bounds.append((low, high) if known else None)
        return bounds


def read_bounds(table: Table, branch: str) -> FileBounds:
    """Read the statistics of every live data file of a branch head; reads manifests only and changes nothing."""
    snapshot = branch_head(table.metadata, branch)
    manifests = live_manifests(table, snapshot) if snapshot is not None else []
    files: list[FileStatistics] = []
    data = [manifest for manifest in manifests if manifest.content == ManifestContent.DATA]
    for manifest, contents in record.read_ahead(data, table.io):
        stop_if_cancelled()
        with stop_if_damaged("manifest", manifest.manifest_path):
            for values in record.read_live_records(manifest, contents(), metrics=True):
                files.append(
                    FileStatistics(
                        values[record.PATH],
                        manifest.partition_spec_id,
                        values[record.PARTITION],
                        values[record.SIZE],
                        values[record.ROWS],
                        record.int_map(values[record.VALUE_COUNTS]),
                        record.int_map(values[record.NULL_COUNTS]),
                        record.int_map(values[record.LOWER_BOUNDS]),
                        record.int_map(values[record.UPPER_BOUNDS]),
                    )
                )
    sizes = [
        ManifestSize(manifest.manifest_length, manifest.content == ManifestContent.DELETES) for manifest in manifests
    ]
    return FileBounds(files, sizes)
