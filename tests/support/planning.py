"""Inventories made of numbers: planning needs no files, only what manifests say of them.

inventory = inventory_of([data_file(3), data_file(5)])          # sizes in MB, unpartitioned
plan = plan_for(inventory, target=512 * MB)
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.typedef import Record

from iceberg_compact_sql.call.binding import GivenArgument, bind
from iceberg_compact_sql.plan.compaction import plan_compaction
from iceberg_compact_sql.plan.cost import Prices
from iceberg_compact_sql.plan.model import CompactionOptions, CompactionPlan
from iceberg_compact_sql.procedures.compact_table import PROCEDURE as COMPACT_TABLE
from iceberg_compact_sql.procedures.compact_table import request_of
from iceberg_compact_sql.rewrite.slicing import output_shares
from iceberg_compact_sql.rewrite.task import RewriteJob
from iceberg_compact_sql.table.column_bounds import ColumnBounds
from iceberg_compact_sql.table.inventory import SnapshotFacts, TableInventory
from iceberg_compact_sql.table.model import DeleteKind, LiveDelete, LiveFile, PlannedState

MB = 1024**2
HOUR_MS = 3_600_000
NOW_MS = 1_800_000_000_000
STATE = PlannedState("11111111-2222-3333-4444-555555555555", 2, "main", 10, 10)
_numbers = itertools.count()


def data_file(size_mb: float, **changes: Any) -> LiveFile:
    """A Parquet file of `size_mb` in an unpartitioned table, as old as the first commit."""
    facts: dict[str, Any] = {
        "path": f"file:///lake/data/{next(_numbers):08d}.parquet",
        "file_format": "PARQUET",
        "spec_id": 0,
        "partition": (),
        "size_bytes": int(size_mb * MB),
        "rows": 1000,
        "sequence_number": 1,
        "snapshot_id": 1,
        "file_sequence_number": changes.get("sequence_number", 1),
    }
    return LiveFile(**{**facts, **changes})


def delete_file(kind: DeleteKind = DeleteKind.POSITION, **changes: Any) -> LiveDelete:
    """A delete of the last commit in an unpartitioned table, for no file in particular."""
    facts: dict[str, Any] = {
        "path": f"file:///lake/data/delete-{next(_numbers):08d}.parquet",
        "kind": kind,
        "file_format": "PUFFIN" if kind is DeleteKind.VECTOR else "PARQUET",
        "spec_id": 0,
        "partition": (),
        "sequence_number": 10,
        "size_bytes": 1000,
        "rows": 10,
        "equality_ids": (1,) if kind is DeleteKind.EQUALITY else (),
    }
    return LiveDelete(**{**facts, **changes})


def inventory_of(
    files: Sequence[LiveFile],
    deletes: Sequence[LiveDelete] = (),
    *,
    specs: Mapping[int, PartitionSpec] | None = None,
    default_spec_id: int = 0,
    snapshots: Sequence[SnapshotFacts] = (),
    schemas: Sequence[Schema] = (),
    bounds: Mapping[str, Mapping[int, ColumnBounds]] | None = None,
) -> TableInventory:
    """An inventory of exactly these files and deletes."""
    return TableInventory(
        STATE,
        list(files),
        list(deletes),
        specs=specs or {0: UNPARTITIONED_PARTITION_SPEC},
        default_spec_id=default_spec_id,
        snapshots=snapshots,
        schemas=schemas,
        bounds=bounds,
    )


def plan_for(inventory: TableInventory, now_ms: int = NOW_MS, **arguments: Any) -> CompactionPlan:
    """The plan of a call with these arguments."""
    return plan_compaction(inventory, options_for(**arguments), now_ms=now_ms, prices=Prices())


def options_for(
    *, properties: Mapping[str, str] | None = None, spec_ids: Collection[int] | None = None, **arguments: Any
) -> CompactionOptions:
    """The planning options of a call with these arguments, bound as a CALL's are."""
    given = [GivenArgument("db.t", "table"), *(GivenArgument(value, name) for name, value in arguments.items())]
    bound = bind(COMPACT_TABLE, given, now_ms=NOW_MS, time_zone=lambda: "UTC")
    return request_of(bound).planning_options(properties or {}, spec_ids)


def after_run(inventory: TableInventory, plan: CompactionPlan, *, even: bool = False) -> TableInventory:
    """What the table looks like when the plan was run: outputs of the expected sizes, without deletes of their own.

    `even` cuts each group into equal outputs, whatever their size.
    """
    gone = {file.path for group in plan.rewrites for file in group.files}
    files = [file for file in inventory.files if file.path not in gone]
    for group in plan.rewrites:
        rows = sum(file.rows for file in group.files)
        if even:
            each, rest = divmod(group.input_bytes, group.expected_files)
            sizes = [each + (1 if position < rest else 0) for position in range(group.expected_files)]
        else:
            sizes = output_shares(group.input_bytes, group.expected_files, job_for(plan.options))
        for position, size in enumerate(sizes):
            share = rows // len(sizes) + (1 if position < rows % len(sizes) else 0)
            made = data_file(0, size_bytes=size, rows=share, spec_id=group.output_spec_id)
            files.append(_placed(made, group.partition))
    return inventory_of(files, inventory.deletes, specs=inventory.specs, default_spec_id=inventory.default_spec_id)


def job_for(options: CompactionOptions) -> RewriteJob:
    """A rewrite job with the sizes of these options, for a table of no columns."""
    return RewriteJob(
        run_id="r",
        table_location="file:///t",
        schema_json="{}",
        specs_json=(),
        output_spec_id=0,
        name_mapping_json=None,
        properties={},
        io_properties={},
        target_bytes=options.target_bytes,
        roll_bytes=options.roll_bytes,
        min_file_bytes=options.min_file_bytes,
        max_file_bytes=options.max_file_bytes,
    )


def _placed(file: LiveFile, partition: tuple[Any, ...] | None) -> LiveFile:
    # The planned sequence number, and a commit of its own after it.
    return replace(file, partition=partition or (), sequence_number=10, file_sequence_number=11)


def fake_append(table: Table, files: Sequence[tuple[tuple[Any, ...], int, int]]) -> list[str]:
    """Commit data files that exist in the metadata only: (partition, bytes, rows) each; gives their paths."""
    paths = []
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
        for partition, size_bytes, rows in files:
            path = f"{table.location()}/data/{next(_numbers):08d}.parquet"
            file = DataFile.from_args(
                content=DataFileContent.DATA,
                file_path=path,
                file_format=FileFormat.PARQUET,
                partition=Record(*partition),
                record_count=rows,
                file_size_in_bytes=size_bytes,
                column_sizes={},
                value_counts={},
                null_value_counts={},
                nan_value_counts={},
                lower_bounds={},
                upper_bounds={},
                split_offsets=[4],
                sort_order_id=0,
            )
            file.spec_id = table.spec().spec_id
            append.append_data_file(file)
            paths.append(path)
    table.refresh()
    return paths
