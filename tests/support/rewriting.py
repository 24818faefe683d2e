"""Jobs and file groups made by hand for tests of the rewrite: Parquet files in a folder, no catalog."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.types import DoubleType, LongType, NestedField, StringType

from iceberg_compact_sql.engine.runner import RewriteRun
from iceberg_compact_sql.plan.model import FileGroup
from iceberg_compact_sql.plan.packing import expected_outputs
from iceberg_compact_sql.rewrite.run_task import run_task
from iceberg_compact_sql.rewrite.scan.arrow_types import arrow_schema
from iceberg_compact_sql.rewrite.slicing import cut_group
from iceberg_compact_sql.rewrite.task import OutputFile, RewriteJob, RewriteResult
from iceberg_compact_sql.table.model import DeleteKind, LiveDelete, LiveFile

KB, MB = 1024, 1024**2
SCHEMA = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "name", StringType()),
    NestedField(3, "value", DoubleType()),
)


def numbered_rows(count: int, *, first: int = 0, schema: Schema = SCHEMA) -> pa.Table:
    """Rows of the standard schema, all different, with nulls; columns that a schema adds are filled by its type."""
    ids = range(first, first + count)
    columns: dict[str, list[Any]] = {
        "id": list(ids),
        "name": [None if i % 11 == 0 else f"name-{i % 97}" for i in ids],
        "value": [None if i % 7 == 0 else i / 3 for i in ids],
    }
    arrow = arrow_schema(schema)
    return pa.Table.from_arrays([pa.array(columns[f.name], f.type) for f in arrow], schema=arrow)


@dataclass
class Bench:
    """A folder with input files and the job that rewrites them."""

    folder: Path
    schema: Schema = SCHEMA
    specs: Sequence[PartitionSpec] = (UNPARTITIONED_PARTITION_SPEC,)
    files: list[LiveFile] = field(default_factory=list)
    deletes: list[tuple[LiveDelete, ...]] = field(default_factory=list)

    def job(self, **changes: Any) -> RewriteJob:
        target_bytes = changes.pop("target_bytes", 512 * MB)
        settings: dict[str, Any] = {
            "run_id": "run1",
            "table_location": self.folder.as_uri(),
            "schema_json": self.schema.model_dump_json(),
            "specs_json": tuple(spec.model_dump_json() for spec in self.specs),
            "output_spec_id": self.specs[-1].spec_id,
            "name_mapping_json": None,
            "properties": {},
            "io_properties": {},
            "target_bytes": target_bytes,
            "roll_bytes": int(1.4 * target_bytes),
            "min_file_bytes": int(0.75 * target_bytes),
            "max_file_bytes": int(1.8 * target_bytes),
            "copy_min_row_group_bytes": 1,
        }
        return RewriteJob(**{**settings, **changes})

    def add(
        self, table: pa.Table, *, deletes: tuple[LiveDelete, ...] = (), partition: tuple[Any, ...] = (), **options: Any
    ) -> LiveFile:
        """Write an input file; `options` go to pyarrow's writer."""
        path = self.folder / f"input-{len(self.files):04d}.parquet"
        spec_id = options.pop("spec_id", self.specs[0].spec_id)
        nan_counts = options.pop("nan_counts", ())
        pq.write_table(table, path, **{"compression": "zstd", "store_decimal_as_integer": True, **options})
        metadata = pq.read_metadata(path)
        first = [metadata.row_group(index).column(0) for index in range(metadata.num_row_groups)]
        offsets = tuple(chunk.dictionary_page_offset or chunk.data_page_offset for chunk in first)
        file = LiveFile(
            path.as_uri(),
            "PARQUET",
            spec_id,
            partition,
            path.stat().st_size,
            table.num_rows,
            1,
            1,
            split_offsets=offsets,
            nan_counts=nan_counts,
        )
        self.files.append(file)
        self.deletes.append(deletes)
        return file

    def position_deletes(self, path: str, positions: Sequence[int]) -> LiveDelete:
        name = self.folder / f"deletes-{abs(hash((path, tuple(positions))))}.parquet"
        schema = pa.schema(
            [
                pa.field("file_path", pa.string(), metadata={b"PARQUET:field_id": b"2147483546"}),
                pa.field("pos", pa.int64(), metadata={b"PARQUET:field_id": b"2147483545"}),
            ]
        )
        pq.write_table(pa.table([[path] * len(positions), list(positions)], schema=schema), name)
        size_bytes = name.stat().st_size
        return LiveDelete(
            name.as_uri(), DeleteKind.POSITION, "PARQUET", 0, (), 2, size_bytes, len(positions), referenced_path=path
        )

    def delete(self, position: int, positions: Sequence[int]) -> None:
        """Delete rows of the file at `position` in this bench."""
        deletes = self.position_deletes(self.files[position].path, positions)
        self.deletes[position] = (*self.deletes[position], deletes)

    def group(self, job: RewriteJob, *, group_id: int = 0, partition: tuple[Any, ...] | None = ()) -> FileGroup:
        total_bytes = sum(file.size_bytes for file in self.files)
        return FileGroup(
            group_id=group_id,
            spec_id=self.specs[0].spec_id,
            output_spec_id=job.output_spec_id,
            partition=partition,
            partition_path="",
            action="rewrite",
            reason="test",
            files=tuple(self.files),
            deletes=tuple(self.deletes),
            input_bytes=total_bytes,
            expected_files=expected_outputs(total_bytes, job),
        )

    def rewrite(self, job: RewriteJob, *, partition: tuple[Any, ...] | None = ()) -> list[RewriteResult]:
        """Run all tasks of one group; a failure fails the test."""
        results = []
        for task in cut_group(self.group(job, partition=partition), job):
            result = run_task(job, task)
            assert isinstance(result, RewriteResult), result.reason
            results.append(result)
        return results

    def written(self) -> list[Path]:
        """Files under the data folder."""
        return sorted(path for path in (self.folder / "data").rglob("*") if path.is_file())


def in_this_process(job: RewriteJob, **settings: Any) -> RewriteRun:
    """A run without a session: its tasks are threads of this process."""
    return RewriteRun(spark=None, job=job, description="test", **settings)


def local(path: str) -> Path:
    return Path(path.removeprefix("file://"))


def outputs(results: Sequence[RewriteResult]) -> list[OutputFile]:
    return [output for result in results for output in result.outputs]


def read_back(results: Sequence[RewriteResult]) -> list[dict[str, Any]]:
    """All rows of the outputs as pyarrow reads them, in order of `id` where there is one."""
    found = [row for output in outputs(results) for row in pq.ParquetFile(local(output.path)).read().to_pylist()]
    return sorted(found, key=lambda row: row["id"]) if found and "id" in found[0] else found
