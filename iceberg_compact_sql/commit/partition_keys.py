"""Partitions as keys: the same partition read from two manifests, or computed twice, is one key."""

from __future__ import annotations

import datetime as dt
import math
import uuid
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

from pyiceberg.typedef import Record
from pyiceberg.utils.datetime import date_to_days, datetime_to_micros, time_to_micros

from iceberg_compact_sql.units import EXACT_DECIMALS

PartitionKey = tuple[Any, ...]


def loose_partition_key(spec_id: int, partition: Record | Iterable[Any]) -> PartitionKey:
    """A hashable key of (spec, values): NaN equals NaN, and -0.0 equals 0.0 since it must never miss a delete.

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
    if isinstance(value, dt.datetime):
        return datetime_to_micros(value)
    if isinstance(value, dt.date):
        return date_to_days(value)
    if isinstance(value, dt.time):
        return time_to_micros(value)
    if isinstance(value, Decimal):
        return value.normalize(EXACT_DECIMALS)
    return value
