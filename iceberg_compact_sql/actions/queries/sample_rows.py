"""A sample of the key columns of a table, for the simulation of layouts."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.table import Table

from iceberg_compact_sql.events import stop_if_cancelled
from iceberg_compact_sql.plan.advice.model import TableFacts
from iceberg_compact_sql.plan.model import FileGroup
from iceberg_compact_sql.rewrite.job import build_job
from iceberg_compact_sql.rewrite.live_rows import open_inputs
from iceberg_compact_sql.rewrite.slicing import whole_task

MOST_ROWS = 500_000
# Fewer rows for each file predict too few files on correlated columns.
ROWS_PER_FILE = 250
_LEAST_ROWS = 100_000
# Row groups that are read of one file: a sorted file differs from its beginning to its end.
_ROW_GROUPS = 4
_SEED = 7


def sampled_rows(table: Table, facts: TableFacts, columns: Sequence[str]) -> dict[str, list[Any]]:
    """Return values of the columns for rows of evenly chosen files; the same rows in every call. Reads data files."""
    files = facts.inventory.files
    count = min(len(files), MOST_ROWS // ROWS_PER_FILE)
    chosen = [index * len(files) // count for index in range(count)]
    per_file = min(max(ROWS_PER_FILE, _LEAST_ROWS // max(1, count)), MOST_ROWS // max(1, count))
    schema = table.schema()
    ids = {schema.find_field(name).field_id for name in columns}
    draw = random.Random(_SEED)
    job = build_job(
        table,
        options=facts.options,
        overrides={},
        verify="rows",
        run_id="advise",
        output_spec_id=facts.metadata.default_spec_id,
        cores=1,
    )
    result: dict[str, list[Any]] = {name: [] for name in columns}
    for index in chosen:
        stop_if_cancelled()
        file = files[index]
        spec = file.spec_id
        group = FileGroup(0, spec, spec, file.partition, "", "rewrite", "", (file,), ((),), file.size_bytes, 1)
        for reader in open_inputs(job, whole_task(group, [0]), table.io, columns=ids):
            with reader:
                groups = list(reader.row_groups)
                some = draw.sample(groups, min(_ROW_GROUPS, len(groups)))
                for row_group in some:
                    rows = pa.Table.from_batches(reader.read(row_group.index))
                    wanted = min(rows.num_rows, -(-per_file // len(some)))
                    picked = rows.take(pa.array(sorted(draw.sample(range(rows.num_rows), wanted)), pa.int64()))
                    for name in columns:
                        result[name].extend(_plain(picked.column(name)))
    return result


def bounded_rows(schema: Schema, facts: TableFacts, columns: Sequence[str]) -> dict[str, list[Any]]:
    """Return values that the bounds of files allow, as if the columns were independent; reads no data file."""
    draw = random.Random(_SEED)
    count = max(1, min(ROWS_PER_FILE, MOST_ROWS // max(1, len(facts.bounds.files))))
    result: dict[str, list[Any]] = {name: [] for name in columns}
    for name in columns:
        field = schema.find_field(name)
        for bound in facts.bounds.of(field.field_id, field.field_type):
            if bound is None:
                result[name] += [None] * count
                continue
            low, high = bound
            if isinstance(low, (int, float)) and not isinstance(low, bool):
                whole = isinstance(low, int)
                values = [low + (high - low) * step / max(1, count - 1) for step in range(count)]
                spread: list[Any] = [int(value) for value in values] if whole else list(values)
            else:
                spread = [low if step % 2 else high for step in range(count)]
            draw.shuffle(spread)
            result[name] += spread
    return result


def _plain(column: pa.ChunkedArray) -> list[Any]:
    """Return values as filters of a log write them: microseconds, days, numbers and text."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        return list(column.cast(pa.timestamp("us", kind.tz)).cast(pa.int64()).to_pylist())
    if pa.types.is_date(kind):
        return list(column.cast(pa.int32()).to_pylist())
    return list(column.to_pylist())
