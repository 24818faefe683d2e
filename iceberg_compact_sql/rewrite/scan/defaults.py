"""Columns whose value is not in the file: identity partition columns, and columns that the file lacks.

A file's partition value of an identity field is the value of its source column in every row of that file. Iceberg's
readers (PartitionUtil.constantsMap, over the spec of the file itself) take it even if the file has the column with
other values, as imported files may. So it comes first here too.
"""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import NestedField

from iceberg_compact_sql.rewrite.scan.arrays import null_array
from iceberg_compact_sql.rewrite.scan.arrow_types import arrow_type
from iceberg_compact_sql.rewrite.scan.inputs import ProjectionError


def identity_values(spec: PartitionSpec, partition: Sequence[Any]) -> Mapping[int, Any]:
    """Return the values of identity partition fields by the id of their source column."""
    return {
        field.source_id: value
        for field, value in zip(spec.fields, partition, strict=False)
        if isinstance(field.transform, IdentityTransform)
    }


def missing_column(field: NestedField, identity: Mapping[int, Any]) -> pa.Scalar:
    """Return the value of a column that a file lacks, by the specification's section "Column Projection".

    A null partition value counts as no value only for a required column; a required column without any value is an
    error, since the table's readers would fail on it too.
    """
    kind = arrow_type(field.field_type)
    if identity.get(field.field_id) is not None:
        return constant(identity[field.field_id], kind)
    if field.field_id not in identity and field.initial_default is not None:
        return constant(field.initial_default, kind)
    if field.required:
        raise ProjectionError(f"the required column '{field.name}' (id {field.field_id}) is missing and has no default")
    return constant(None, kind)


def constant(value: Any, kind: pa.DataType) -> pa.Scalar:
    """Return an Arrow scalar of a value from manifests and schemas: numbers since 1970, or Python objects."""
    if value is None:
        # Arrow cannot make a null scalar of a type that contains a uuid.
        return null_array(kind, 1)[0]
    if isinstance(kind, pa.BaseExtensionType):
        storage = value.bytes if isinstance(value, uuid.UUID) else value
        return pa.ExtensionScalar.from_storage(kind, pa.scalar(storage, kind.storage_type))
    if isinstance(value, uuid.UUID):
        value = value.bytes
    if isinstance(value, int) and not isinstance(value, bool):
        if pa.types.is_date32(kind):
            return pa.scalar(value, pa.int32()).cast(kind)
        if pa.types.is_timestamp(kind) or pa.types.is_time64(kind):
            return pa.scalar(value, pa.int64()).cast(kind)
    if isinstance(value, datetime.datetime) and value.tzinfo is not None and pa.types.is_timestamp(kind):
        value = value.astimezone(datetime.timezone.utc)
    return pa.scalar(value, kind)
