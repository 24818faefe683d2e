"""When two partitions are equal. There are two answers, for different uses.

`exact_partition_key`: Iceberg's own equality. NaN equals NaN, and -0.0 is not 0.0. Used to apply deletes, to group
    files and to write them.
`loose_partition_key`: two partitions that may be equal. -0.0 equals 0.0, and values compare equal in every form that a
    manifest may give them. Used for conflict checks and for dangling deletes: a missed match would bring deleted rows
    back.
"""

from __future__ import annotations

import math
import struct
import uuid
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

from pyiceberg.typedef import Record

from iceberg_compact_sql.pyiceberg_internals.manifest_writer import stored_time
from iceberg_compact_sql.units import EXACT_DECIMALS

PartitionKey = tuple[Any, ...]
_NAN = b"nan"


def exact_partition_key(partition: tuple[Any, ...]) -> PartitionKey:
    """Return a partition's values as a hashable key by Iceberg's own equality.

    >>> exact_partition_key((float("nan"), "a")) == exact_partition_key((float("nan"), "a"))
    True
    >>> exact_partition_key((0.0,)) == exact_partition_key((-0.0,))
    False
    """
    for value in partition:
        if isinstance(value, float):
            return tuple(_float_key(v) if isinstance(v, float) else v for v in partition)
    return partition


def loose_partition_key(spec_id: int, partition: Record | Iterable[Any]) -> PartitionKey:
    """Return spec and values as a hashable key that never misses a match.

    >>> loose_partition_key(0, (float("nan"), -0.0)) == loose_partition_key(0, (float("nan"), 0.0))
    True
    """
    values = (partition[i] for i in range(len(partition))) if isinstance(partition, Record) else partition
    return (spec_id, *(_canonical(value) for value in values))


def _canonical(value: Any) -> Any:
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    if isinstance(value, uuid.UUID):
        return value.bytes
    if isinstance(value, Decimal):
        return value.normalize(EXACT_DECIMALS)
    return stored_time(value)


def _float_key(value: float) -> bytes:
    return _NAN if math.isnan(value) else struct.pack(">d", value)
