"""Partition paths, such as `day=2026-01-01/kind=a`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote_plus

from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType


class PartitionPaths:
    """Makes partition paths for every spec of a table, also when a source column was dropped since."""

    def __init__(self, specs: Mapping[int, PartitionSpec], schemas: Sequence[Schema]) -> None:
        self._specs = specs
        self._schemas = schemas
        self._fields: dict[int, list[tuple[PartitionField, IcebergType | None]]] = {}

    def path(self, spec_id: int, partition: tuple[Any, ...]) -> str:
        """Return the path of a partition, empty when the spec has no fields; values are escaped as in Iceberg."""
        fields = self._fields.get(spec_id)
        if fields is None:
            spec = self._specs.get(spec_id)
            fields = [(field, self._source_type(field.source_id)) for field in spec.fields] if spec is not None else []
            self._fields[spec_id] = fields
        return "/".join(
            f"{quote_plus(field.name)}={quote_plus(_value_text(field, source, value))}"
            for (field, source), value in zip(fields, partition, strict=False)
        )

    def _source_type(self, source_id: int) -> IcebergType | None:
        for schema in self._schemas:
            try:
                return schema.find_type(source_id)
            except ValueError:
                continue
        return None


def _value_text(field: PartitionField, source: IcebergType | None, value: Any) -> str:
    if value is None:
        return "null"
    if source is None:
        return str(value)
    try:
        return field.transform.to_human_string(source, value)
    except (ValueError, TypeError, AttributeError, NotImplementedError):
        return str(value)
