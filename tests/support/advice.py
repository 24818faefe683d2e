"""Tables made of numbers for the rules of advise: metadata, files and statistics without any file.

facts = table_facts([data_file(3)], partition_by="day(at)")
texts = [finding.topic for finding in findings(facts)]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyiceberg.conversions import to_bytes
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.sorting import SortField, SortOrder
from pyiceberg.transforms import parse_transform
from pyiceberg.types import LongType, NestedField, StringType, TimestampType

from iceberg_compact_sql.plan.advice.model import TableFacts
from iceberg_compact_sql.table.file_bounds import FileBounds, FileStatistics, ManifestSize
from iceberg_compact_sql.table.model import LiveDelete, LiveFile
from tests.support.planning import MB, NOW_MS, inventory_of

SCHEMA = Schema(
    NestedField(1, "id", LongType()), NestedField(2, "name", StringType()), NestedField(3, "at", TimestampType())
)
FIELD_IDS = {"id": 1, "name": 2, "at": 3}


def make_metadata(
    *,
    partition_by: str | None = None,
    sorted_by: str | None = None,
    properties: Mapping[str, str] | None = None,
    snapshots: Sequence[Snapshot] = (),
    **changes: Any,
) -> TableMetadata:
    """Metadata of a table (id, name, at); `partition_by` is `day(at)` or `bucket[16](id)`."""
    fields = []
    if partition_by:
        transform, _, column = partition_by.rstrip(")").partition("(")
        name = f"{column}_{transform.split('[')[0]}"
        fields = [PartitionField(FIELD_IDS[column], 1000, parse_transform(transform), name)]
    order = SortOrder(SortField(source_id=FIELD_IDS[sorted_by], transform="identity")) if sorted_by else SortOrder()
    metadata = new_table_metadata(
        SCHEMA, PartitionSpec(*fields), order, "file:///lake/t", {"format-version": "2", **(properties or {})}
    )
    return metadata.model_copy(update={"snapshots": list(snapshots), **changes})


def snapshot(number: int, time_ms: int, operation: Operation = Operation.APPEND, **summary: int) -> Snapshot:
    """A snapshot at a time; `added_data_files=3` becomes `added-data-files`."""
    properties = {key.replace("_", "-"): str(value) for key, value in summary.items()}
    return Snapshot(
        snapshot_id=number,
        sequence_number=number,
        timestamp_ms=time_ms,
        manifest_list="file:///lake/t/metadata/list.avro",
        summary=Summary(operation, **properties),
        schema_id=0,
    )


def statistics(file: LiveFile, **bounds: tuple[Any, Any] | None) -> FileStatistics:
    """The statistics of a file; `id=(1, 5)` are bounds, and a column that is not named has none."""
    known = {FIELD_IDS[name]: pair for name, pair in bounds.items() if pair is not None}
    encode = {field_id: SCHEMA.find_type(field_id) for field_id in known}
    return FileStatistics(
        file.path,
        file.spec_id,
        file.partition,
        file.size_bytes,
        file.rows,
        dict.fromkeys(FIELD_IDS.values(), file.rows),
        dict.fromkeys(FIELD_IDS.values(), 0),
        {field_id: to_bytes(encode[field_id], pair[0]) for field_id, pair in known.items()},
        {field_id: to_bytes(encode[field_id], pair[1]) for field_id, pair in known.items()},
    )


def table_facts(
    files: Sequence[LiveFile] = (),
    deletes: Sequence[LiveDelete] = (),
    *,
    bounds: Sequence[FileStatistics] | None = None,
    manifests: Sequence[ManifestSize] = (),
    metadata_bytes: int | None = 10_000,
    target_bytes: int = 512 * MB,
    now_ms: int = NOW_MS,
    **metadata: Any,
) -> TableFacts:
    """What the rules see of such a table; without `bounds` every column of every file has some."""
    made = make_metadata(**metadata)
    if bounds is None:
        bounds = [statistics(file, id=(1, 2), name=("a", "b"), at=(1, 2)) for file in files]
    return TableFacts(
        spark_name="`lake`.`db`.`t`",
        metadata=made,
        inventory=inventory_of(files, deletes, specs=made.specs(), schemas=made.schemas),
        bounds=FileBounds(bounds, manifests),
        metadata_bytes=metadata_bytes,
        target_bytes=target_bytes,
        now_ms=now_ms,
    )
