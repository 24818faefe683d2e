"""Handles named Avro types: two decimals of one precision in a spec, or two uuids, have the same type name.

Java defines such a type once and then refers to it by name, which pyiceberg cannot read. pyiceberg itself defines it
twice, which Avro forbids and strict readers refuse.
"""

from __future__ import annotations

from typing import Any

from pyiceberg.schema import Schema
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

_NESTING = ("type", "items", "values", "fields")
_to_iceberg = AvroSchemaConversion.avro_to_iceberg
_to_avro = AvroSchemaConversion.iceberg_to_avro


def _read(self: AvroSchemaConversion, avro_schema: dict[str, Any]) -> Schema:
    return _to_iceberg(self, inline_named_types(avro_schema))


def _written(self: AvroSchemaConversion, schema: Schema, schema_name: str | None = None) -> Any:
    return _with_unique_names(_to_avro(self, schema, schema_name), {})


def inline_named_types(schema: dict[str, Any]) -> Any:
    """Return the schema with every reference to a named fixed type replaced by its definition."""
    return _inline(schema, {})


def _inline(node: Any, defined: dict[str, Any]) -> Any:
    if isinstance(node, str):
        return defined.get(node, node)
    if isinstance(node, list):
        return [_inline(part, defined) for part in node]
    if node.get("type") == "fixed":
        defined[node["name"]] = node
        return node
    return {key: _inline(value, defined) if key in _NESTING else value for key, value in node.items()}


def _with_unique_names(node: Any, used: dict[str, int]) -> Any:
    """Return the schema with a new name for each repeated fixed type; readers use field ids, not these names."""
    if isinstance(node, list):
        return [_with_unique_names(part, used) for part in node]
    if not isinstance(node, dict):
        return node
    if node.get("type") == "fixed":
        name = node["name"]
        used[name] = used.get(name, 0) + 1
        return node if used[name] == 1 else {**node, "name": f"{name}_{used[name]}"}
    return {key: _with_unique_names(value, used) if key in _NESTING else value for key, value in node.items()}


# Set on the class: pyiceberg converts schemas internally, for every file that it reads or writes.
AvroSchemaConversion.avro_to_iceberg = _read  # type: ignore[method-assign]
AvroSchemaConversion.iceberg_to_avro = _written  # type: ignore[method-assign]
