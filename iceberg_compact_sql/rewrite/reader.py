"""Live rows of input files, a row group at a time, in the table's current schema."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
from pyiceberg.schema import Schema

from iceberg_compact_sql.rewrite.arrow_types import arrow_schema
from iceberg_compact_sql.rewrite.inputs import InputFileError
from iceberg_compact_sql.rewrite.task import RewriteJob

__all__ = ["InputFileError", "output_arrow_schema"]


def output_arrow_schema(job: RewriteJob) -> pa.Schema:
    """The table's current schema as all rows come out of `InputReader.read`, field ids at every level."""
    return arrow_schema(Schema.model_validate_json(job.schema_json))


@dataclass(frozen=True, slots=True)
class RowGroupPart:
    """A row group that belongs to a slice; `touched` if a delete removes at least one row of it."""

    index: int
    rows: int
    compressed_bytes: int
    first_row: int
    touched: bool
