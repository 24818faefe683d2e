"""Replacements made by hand: the rows of some files, read by the oracle, written as new files with pyarrow."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.table import Table

from iceberg_compact_sql.commit.model import Replacement
from iceberg_compact_sql.rewrite.task import OutputFile
from iceberg_compact_sql.table.model import LiveFile, PlannedState
from tests.support import oracle


def planned(table: Table, branch: str = "main") -> PlannedState:
    """The state that a plan made now would carry."""
    metadata = table.refresh().metadata
    head = metadata.snapshot_by_name(branch)
    return PlannedState(
        table_uuid=str(metadata.table_uuid),
        format_version=metadata.format_version,
        branch=branch,
        snapshot_id=head.snapshot_id if head else None,
        sequence_number=(head.sequence_number or 0) if head else 0,
    )


def live_files(table: Table, branch: str = "main", *, snapshot_id: int | None = None) -> list[LiveFile]:
    """Live data files of a branch (or of one snapshot), as an inventory gives them."""
    return [
        LiveFile(
            path=entry["data_file"]["file_path"],
            file_format="PARQUET",
            spec_id=entry["spec_id"],
            partition=tuple(entry["data_file"]["partition"].values()),
            size_bytes=entry["data_file"]["file_size_in_bytes"],
            rows=entry["data_file"]["record_count"],
            sequence_number=entry["seq"],
            snapshot_id=entry["snapshot_id"],
        )
        for entry in oracle.entries(table, branch, snapshot_id=snapshot_id)
        if entry["data_file"].get("content", 0) == 0
    ]


def write_output(
    table: Table, rows: Sequence[dict[str, Any]], *, spec_id: int = 0, partition: tuple[Any, ...] = ()
) -> OutputFile:
    """A data file of these rows, in the table's data folder and in no snapshot."""
    data = pa.Table.from_pylist(list(rows), schema=schema_to_pyarrow(table.schema()))
    path = f"{table.location()}/data/out-{uuid.uuid4()}.parquet"
    with table.io.new_output(path).create() as sink:
        pq.write_table(data, sink)
    return OutputFile(
        path=path,
        size_bytes=len(table.io.new_input(path)),
        rows=len(rows),
        spec_id=spec_id,
        partition=partition,
        column_sizes={},
        value_counts={},
        null_value_counts={},
        nan_value_counts={},
        lower_bounds={},
        upper_bounds={},
        split_offsets=(4,),
    )


def replacement(
    table: Table,
    files: Sequence[LiveFile],
    *,
    key: int = 0,
    branch: str = "main",
    keep_sequence_number: bool = True,
    state: PlannedState | None = None,
) -> Replacement:
    """Rewrite files of one partition into one: their live rows as of the plan (or now), all deletes applied."""
    state = state or planned(table, branch)
    rows = oracle.rows(table, branch, snapshot_id=state.snapshot_id, only_files={file.path for file in files})
    home = files[0]
    output = (write_output(table, rows, spec_id=home.spec_id, partition=home.partition),) if rows else ()
    number = state.sequence_number if keep_sequence_number and state.format_version > 1 else None
    return Replacement(key=key, removed=tuple(files), added=output, data_sequence_number=number)
