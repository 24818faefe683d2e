"""The table of the guided tour: hundreds of small files, rows deleted by position, a snapshot for every commit."""

from __future__ import annotations

import datetime as dt
import random

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import DataFileContent, FileFormat, ManifestContent
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask, Table
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DateType, DoubleType, LongType, NestedField, StringType

from iceberg_compact_sql.commit.metadata_writer import MetadataWriter
from iceberg_compact_sql.commit.snapshot_draft import FileFacts, ManifestDraft, added_entry, read_head
from iceberg_compact_sql.commit.summary import replace_summary
from iceberg_compact_sql.plan.position_deletes import DeleteGroup
from iceberg_compact_sql.pyiceberg_internals.manifest_writer import new_data_file
from iceberg_compact_sql.pyiceberg_internals.requests import replace_request, send_commit
from iceberg_compact_sql.rewrite.deletes.files import POSITION_FIELD_ID
from iceberg_compact_sql.rewrite.write.position_deletes import write_position_files
from iceberg_compact_sql.table.delete_paths import PATH_FIELD_ID

TABLE = "demo.events"
DAYS = 4
COMMITS = 60
DELETES = 8
ROWS_PER_FILE = 2_000
_FIRST_DAY = dt.date(2026, 1, 1)
_SCHEMA = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "day", DateType()),
    NestedField(3, "kind", StringType()),
    NestedField(4, "url", StringType()),
    NestedField(5, "amount", DoubleType()),
)
# Readers find these columns by their reserved field ids.
_DELETE_SCHEMA = pa.schema(
    [
        pa.field("file_path", pa.string(), nullable=False, metadata={"PARQUET:field_id": str(PATH_FIELD_ID)}),
        pa.field("pos", pa.int64(), nullable=False, metadata={"PARQUET:field_id": str(POSITION_FIELD_ID)}),
    ]
)
_SPEC = PartitionSpec(PartitionField(source_id=2, field_id=1000, transform=IdentityTransform(), name="day"))


def make_demo_table(
    catalog: Catalog, *, name: str = TABLE, commits: int = COMMITS, rows_per_file: int = ROWS_PER_FILE
) -> Table:
    """Create the demo table: each commit adds a small file to each of four days; then some rows are deleted.

    The first day's rows are deleted merge-on-read, by position delete files, as streaming writers do.
    """
    catalog.create_namespace_if_not_exists(name.rpartition(".")[0])
    table = catalog.create_table(name, _SCHEMA, partition_spec=_SPEC, properties={"format-version": "2"})
    random.seed(7)
    for number in range(commits):
        table.append(_rows(number * DAYS * rows_per_file, rows_per_file))
    first_day = [task for task in table.scan().plan_files() if task.file.partition[0] == _partition(_FIRST_DAY)]
    for task in first_day[:DELETES]:
        _delete_positions(table, task, range(0, rows_per_file, 2))
    return table


def _rows(first_id: int, rows_per_file: int) -> pa.Table:
    count = DAYS * rows_per_file
    ids = range(first_id, first_id + count)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "day": pa.array([_FIRST_DAY + dt.timedelta(days=n // rows_per_file) for n in range(count)], pa.date32()),
            "kind": [("click", "view", "order")[n % 3] for n in ids],
            "url": [f"https://example.com/{random.randrange(10**6)}" for _ in ids],
            "amount": [random.random() for _ in ids],
        }
    )


def _partition(day: dt.date) -> int:
    return (day - dt.date(1970, 1, 1)).days


def _delete_positions(table: Table, task: FileScanTask, positions: range) -> None:
    """Commit a position delete file for one data file, as a DELETE in merge-on-read mode does."""
    table.refresh()
    head = read_head(table, "main")
    assert head is not None
    metadata, spec = table.metadata, table.spec()
    snapshot_id, sequence_number = metadata.new_snapshot_id(), metadata.next_sequence_number()
    partition = tuple(task.file.partition[i] for i in range(len(spec.fields)))
    path = task.file.file_path
    [written] = write_position_files(
        table.io,
        DeleteGroup(0, spec.spec_id, partition, ()),
        pa.table({"file_path": [path] * len(positions), "pos": positions}, schema=_DELETE_SCHEMA),
        table_location=table.location(),
        properties=metadata.properties,
        schema=table.schema(),
        spec=spec,
        run_id="demo",
        outputs=1,
        created=[],
    )
    file = new_data_file(
        metadata,
        spec_id=spec.spec_id,
        partition=partition,
        content=DataFileContent.POSITION_DELETES,
        file_path=written.path,
        file_format=FileFormat.PARQUET,
        record_count=written.rows,
        file_size_in_bytes=written.size_bytes,
        lower_bounds=written.lower_bounds,
        upper_bounds=written.upper_bounds,
        value_counts=written.value_counts,
        null_value_counts=written.null_value_counts,
        referenced_data_file=written.referenced_path,
    )
    draft = ManifestDraft(ManifestContent.DELETES, spec.spec_id, [added_entry(file, snapshot_id, None)])
    counts = replace_summary(metadata, head.snapshot, [FileFacts.of(file)], [], {})
    written_list = MetadataWriter(snapshot_id).write(head, [*head.manifests, draft], sequence_number)
    requirements, updates = replace_request(
        table,
        branch="main",
        snapshot_id=snapshot_id,
        parent_snapshot_id=head.snapshot.snapshot_id,
        manifest_list=written_list.path,
        assigned_row_ids=written_list.assigned_row_ids,
        sequence_number=sequence_number,
        summary=Summary(Operation.DELETE, **counts.additional_properties),
    )
    send_commit(table, requirements, updates)
    table.refresh()
