"""Where output files go: the table's own layout, under names that never meet twice."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote_plus

from pyiceberg.partitioning import PartitionKey, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.locations import LocationProvider, load_location_provider
from pyiceberg.typedef import Record

from iceberg_compact_sql.rewrite.task import RewriteJob
from iceberg_compact_sql.table.properties import (
    DATA_PATH,
    FOLDER_STORAGE_PATH,
    JAVA_LOCATION_PROVIDER,
    OBJECT_STORAGE_ENABLED,
    OBJECT_STORAGE_PATH,
    PYTHON_LOCATION_PROVIDER,
)


class _TypedPartition(PartitionKey):
    """A partition known by its final values; pyiceberg's own key starts from source values."""

    def __init__(self, values: tuple[Any, ...], spec: PartitionSpec, schema: Schema) -> None:
        super().__init__(field_values=[], partition_spec=spec, schema=schema)
        object.__setattr__(self, "_values", values)

    @property
    def partition(self) -> Record:
        return Record(*self._values)  # type: ignore[attr-defined]

    def to_path(self) -> str:
        return partition_folder(self.partition_spec, self.schema, tuple(self._values))  # type: ignore[attr-defined]


class OutputNames:
    """Paths of a job's outputs; every call gives a new one, so no attempt can overwrite another's file."""

    def __init__(self, job: RewriteJob, schema: Schema, spec: PartitionSpec) -> None:
        self._job = job
        self._schema = schema
        self._spec = spec
        self._locations = location_provider(job.table_location, job.properties)

    def new_path(self, group_id: int, output_index: int, partition: tuple[Any, ...]) -> str:
        name = f"{output_index:05d}-{group_id}-{self._job.run_id}-{uuid.uuid4()}.parquet"
        key = _TypedPartition(partition, self._spec, self._schema) if self._spec.fields else None
        return self._locations.new_data_location(name, key)


def location_provider(table_location: str, properties: Mapping[str, str]) -> LocationProvider:
    """pyiceberg's provider; the older names of the data folder are honoured too, as Java does."""
    effective = dict(properties)
    if DATA_PATH.name not in effective:
        older = [FOLDER_STORAGE_PATH]
        if OBJECT_STORAGE_ENABLED.of(effective):
            older.insert(0, OBJECT_STORAGE_PATH)
        folder = next((effective[path.name] for path in older if path.name in effective), None)
        if folder is not None:
            effective[DATA_PATH.name] = folder
    return load_location_provider(table_location, effective)


def layout_notes(properties: Mapping[str, str]) -> tuple[str, ...]:
    """What of the table's layout cannot be honoured here."""
    if JAVA_LOCATION_PROVIDER.name in properties and PYTHON_LOCATION_PROVIDER.name not in properties:
        return (
            f"'{JAVA_LOCATION_PROVIDER.name}' names a Java class and was not used: files went to the default layout.",
        )
    return ()


def partition_folder(spec: PartitionSpec, schema: Schema, values: tuple[Any, ...]) -> str:
    """`day=2026-01-01/kind=a`, as Iceberg names partition folders; values that it cannot print come as they are."""
    types = spec.partition_type(schema).fields
    parts = []
    for field, kind, value in zip(spec.fields, types, values, strict=True):
        try:
            text = field.transform.to_human_string(kind.field_type, value=value)
        except (TypeError, ValueError, AttributeError, NotImplementedError):
            # The folder name is for people; readers use the manifest.
            text = value.hex() if isinstance(value, bytes) else str(value)
        parts.append(f"{quote_plus(field.name, safe='')}={quote_plus(text, safe='')}")
    return "/".join(parts)


def partition_location(
    name: str,
    table_location: str,
    properties: Mapping[str, str],
    schema: Schema,
    spec: PartitionSpec,
    partition: tuple[Any, ...],
) -> str:
    """The full path of a new file of a partition, in the table's own layout."""
    key = _TypedPartition(partition, spec, schema) if spec.fields else None
    return location_provider(table_location, properties).new_data_location(name, key)
