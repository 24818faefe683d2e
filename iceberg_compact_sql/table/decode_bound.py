"""Decodes the bounds of partition fields in manifest lists."""

from __future__ import annotations

from typing import Any

from pyiceberg.conversions import from_bytes
from pyiceberg.types import IcebergType, PrimitiveType


def decode_bound(field_type: IcebergType, raw: bytes | None) -> Any | None:
    """Return the value of a bound; None if there is no bound, or if it cannot be decoded: then nothing is known.

    A bound cannot be decoded as the field's type when it was written before the type was promoted.

    >>> from pyiceberg.types import DateType
    >>> decode_bound(DateType(), bytes([1, 0, 0, 0])), decode_bound(DateType(), bytes(8))
    (1, None)
    """
    if raw is None or not isinstance(field_type, PrimitiveType):
        return None
    try:
        return from_bytes(field_type, raw)
    except Exception:
        return None
