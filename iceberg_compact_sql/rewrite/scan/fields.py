"""The columns of one file as a tree of field ids: from the file itself, or by the table's name mapping."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyiceberg.table.name_mapping import MappedField, NameMapping

from iceberg_compact_sql.rewrite.scan.arrow_types import FIELD_ID_KEY
from iceberg_compact_sql.rewrite.scan.inputs import ProjectionError
from iceberg_compact_sql.table.properties import NAME_MAPPING


@dataclass(frozen=True, slots=True)
class FileField:
    """A column, struct child, list element, map key or map value of a file; no id: the table does not have it."""

    field_id: int | None
    name: str
    arrow: pa.Field
    children: tuple[FileField, ...]

    @property
    def type(self) -> pa.DataType:
        return self.arrow.type


def file_fields(schema: pa.Schema, mapping: NameMapping | None) -> tuple[FileField, ...]:
    """Return the file's columns with their ids; a file without ids needs the name mapping.

    Any id in the file makes it a file with ids (as in Iceberg's Java readers): its columns without an id are then
    unknown to the table. Two columns with one id are refused.
    """
    if any(_has_id(field) for field in schema):
        fields = tuple(_with_own_ids(field) for field in schema)
    elif mapping is not None:
        fields = tuple(_with_mapped_ids(field, mapping.root) for field in schema)
    else:
        raise ProjectionError(
            f"its columns carry no field ids and the table has no '{NAME_MAPPING.name}' to resolve them by name"
        )
    _refuse_duplicates(fields)
    return fields


def children_of(field: pa.Field) -> list[pa.Field]:
    """Return the fields below a field: all of a struct, the element of a list, key and value of a map."""
    kind = plain_type(field.type)
    if pa.types.is_struct(kind):
        return [kind.field(i) for i in range(kind.num_fields)]
    if pa.types.is_map(kind):
        return [kind.key_field, kind.item_field]
    if is_list(kind):
        return [kind.value_field]
    return []


def is_list(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_list(kind)
        or pa.types.is_large_list(kind)
        or pa.types.is_fixed_size_list(kind)
        or pa.types.is_list_view(kind)
        or pa.types.is_large_list_view(kind)
    )


def plain_type(kind: pa.DataType) -> pa.DataType:
    """Return the storage type of an Arrow extension type, which files of pyarrow may declare."""
    return kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind


def walk(fields: Iterable[FileField]) -> Iterator[FileField]:
    """Yield all fields of the tree, parents first."""
    for field in fields:
        yield field
        yield from walk(field.children)


def _id_of(field: pa.Field) -> int | None:
    raw = (field.metadata or {}).get(FIELD_ID_KEY)
    return int(raw) if raw is not None else None


def _has_id(field: pa.Field) -> bool:
    return _id_of(field) is not None or any(_has_id(child) for child in children_of(field))


def _with_own_ids(field: pa.Field) -> FileField:
    return FileField(_id_of(field), field.name, field, tuple(_with_own_ids(child) for child in children_of(field)))


def _with_mapped_ids(field: pa.Field, mapped: Sequence[MappedField], role: str | None = None) -> FileField:
    # Name mappings use the specification's names for list and map fields, whatever the file calls them.
    mapping = next((m for name in (role, field.name) if name is not None for m in mapped if name in m.names), None)
    below = mapping.fields if mapping is not None else []
    kind = plain_type(field.type)
    roles: list[str | None]
    if pa.types.is_map(kind):
        roles = ["key", "value"]
    elif is_list(kind):
        roles = ["element"]
    else:
        roles = [None] * len(children_of(field))
    children = tuple(_with_mapped_ids(c, below, r) for c, r in zip(children_of(field), roles, strict=True))
    return FileField(mapping.field_id if mapping is not None else None, field.name, field, children)


def _refuse_duplicates(fields: Iterable[FileField]) -> None:
    seen: dict[int, str] = {}
    for field in walk(fields):
        if field.field_id is None:
            continue
        if field.field_id in seen:
            raise ProjectionError(
                f"two columns, '{seen[field.field_id]}' and '{field.name}', have the field id {field.field_id}"
            )
        seen[field.field_id] = field.name
