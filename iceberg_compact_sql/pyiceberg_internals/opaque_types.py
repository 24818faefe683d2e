"""Types that pyiceberg 0.12 cannot parse, kept as their text. Importing this module does it.

pyiceberg refuses to load a table with a column of type `variant`, or of `geometry` and `geography` in the spelling of
Java. Maintenance that does not look into columns needs only the text.
"""

from __future__ import annotations

from typing import Any

from pydantic import model_serializer
from pyiceberg.types import IcebergType, PrimitiveType

_PREFIXES = ("variant", "geometry", "geography")


class OpaqueType(PrimitiveType):
    """A type of which only the text is known."""

    root: str

    def __new__(cls, *_: Any, **__: Any) -> OpaqueType:
        # pyiceberg's primitive types have one instance for each class and arguments.
        return object.__new__(cls)

    @model_serializer
    def ser_model(self) -> str:
        return self.root

    def __repr__(self) -> str:
        return f"OpaqueType({self.root!r})"

    def __str__(self) -> str:
        return self.root

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OpaqueType) and other.root == self.root

    def __hash__(self) -> int:
        return hash(self.root)


_parse: Any = IcebergType.handle_primitive_type


def _parse_or_keep(value: Any, handler: Any) -> IcebergType:
    try:
        parsed: IcebergType = _parse(value, handler)
        return parsed
    except Exception:
        if isinstance(value, str) and value.startswith(_PREFIXES):
            return OpaqueType.model_construct(root=value)
        raise


# pyiceberg calls it by this name for each field of a struct.
IcebergType.handle_primitive_type = _parse_or_keep  # type: ignore[method-assign, assignment]
