"""Partition values as keys and as paths."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote_plus

from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import VoidTransform
from pyiceberg.types import IcebergType

_NAN = b"nan"


def partition_key(partition: tuple[Any, ...]) -> tuple[Any, ...]:
    """A partition as a key: NaN equals NaN, and -0.0 is not 0.0, as Iceberg keeps them apart.

    >>> partition_key((float("nan"), "a")) == partition_key((float("nan"), "a"))
    True
    >>> partition_key((0.0,)) == partition_key((-0.0,))
    False
    """
    for value in partition:
        if isinstance(value, float):
            return tuple(_float_key(v) if isinstance(v, float) else v for v in partition)
    return partition


def is_unpartitioned(spec: PartitionSpec) -> bool:
    """Whether a spec splits nothing: no fields, or only void ones. Equality deletes of such a spec are global."""
    return all(isinstance(field.transform, VoidTransform) for field in spec.fields)


class PartitionPaths:
    """`day=2026-01-01/kind=a` for every spec of a table, also when a source column was dropped since."""

    def __init__(self, specs: Mapping[int, PartitionSpec], schemas: Sequence[Schema]) -> None:
        self._specs = specs
        self._schemas = schemas
        self._fields: dict[int, list[tuple[PartitionField, IcebergType | None]]] = {}

    def path(self, spec_id: int, partition: tuple[Any, ...]) -> str:
        """The path of a partition, empty when the spec has no fields; values are escaped as Iceberg does."""
        fields = self._fields.get(spec_id)
        if fields is None:
            spec = self._specs.get(spec_id)
            fields = [(field, self._source_type(field.source_id)) for field in spec.fields] if spec is not None else []
            self._fields[spec_id] = fields
        return "/".join(
            f"{quote_plus(field.name)}={quote_plus(_human(field, source, value))}"
            for (field, source), value in zip(fields, partition, strict=False)
        )

    def _source_type(self, source_id: int) -> IcebergType | None:
        for schema in self._schemas:
            try:
                return schema.find_type(source_id)
            except ValueError:
                continue
        return None


def _human(field: PartitionField, source: IcebergType | None, value: Any) -> str:
    if value is None:
        return "null"
    if source is None:
        return str(value)
    try:
        return field.transform.to_human_string(source, value)
    except (ValueError, TypeError, AttributeError, NotImplementedError):
        return str(value)


def _float_key(value: float) -> bytes:
    return _NAN if math.isnan(value) else struct.pack(">d", value)
