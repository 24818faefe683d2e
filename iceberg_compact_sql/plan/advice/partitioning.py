"""Rules about partitions: a spec that is too fine or too coarse for the data, and one that would fit."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass

from pyiceberg.partitioning import PartitionField
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import DateType, IcebergType, TimestampType, TimestamptzType

from iceberg_compact_sql.plan.advice.model import Finding, TableFacts, average_text, quoted
from iceberg_compact_sql.table.model import LiveFile
from iceberg_compact_sql.table.partition_keys import exact_partition_key
from iceberg_compact_sql.units import format_bytes

_MIN_PARTITIONS = 50
# Too fine: the average partition is below this share of one target file. Too coarse: above this many target files.
_FINE_SHARE = 0.1
_COARSE_TARGETS = 200
# A finer spec leaves at least this many target files in each partition.
_LEAST_TARGETS = 2
_TIME_UNITS = ("hour", "day", "month", "year")
_UNIT_DAYS = {"hour": 1 / 24, "day": 1.0, "month": 30.4, "year": 365.25}
_MICROS_A_DAY = 86_400_000_000
_EPOCH = dt.date(1970, 1, 1)
_TIME_TYPES = (DateType, TimestampType, TimestamptzType)


@dataclass(frozen=True, slots=True)
class _Spec:
    """A change of one partition field: the clause of ALTER TABLE, and how many partitions there are afterwards."""

    clause: str
    partitions: int
    shown: str


def too_fine(facts: TableFacts) -> Iterator[Finding]:
    """Partitions so small that even after compaction each holds one file far below the target."""
    files = _current(facts)
    partitions = len({exact_partition_key(file.partition) for file in files})
    total = sum(file.size_bytes for file in files)
    if partitions < _MIN_PARTITIONS or total / partitions >= _FINE_SHARE * facts.target_bytes:
        return
    spec = _coarser(facts, files, total)
    if spec is None:
        return
    yield Finding(
        topic="partitions",
        severity="high" if partitions >= 1000 else "medium",
        finding=f"{partitions} partitions of {average_text(total, partitions)} on average, below a tenth of the target "
        f"{format_bytes(facts.target_bytes)}; {spec.shown} would make {spec.partitions} of "
        f"{average_text(total, spec.partitions)}. Old files move with a compaction (rewrite_all => true)",
        action=f"ALTER TABLE {facts.spark_name} {spec.clause}",
        gain=f"{partitions - spec.partitions} partitions, and as many files, fewer",
        weight=1 - spec.partitions / partitions,
    )


def too_coarse(facts: TableFacts) -> Iterator[Finding]:
    """Partitions so large that filters and maintenance work on too much at once."""
    files = _current(facts)
    partitions = len({exact_partition_key(file.partition) for file in files})
    total = sum(file.size_bytes for file in files)
    if not partitions or total / partitions <= _COARSE_TARGETS * facts.target_bytes:
        return
    spec = _finer(facts, total, partitions)
    if spec is None:
        return
    now = "1 partition" if partitions == 1 else f"{partitions} partitions"
    yield Finding(
        topic="partitions",
        severity="medium",
        finding=f"{now} of {average_text(total, partitions)} on average, more than {_COARSE_TARGETS} files of the "
        f"target size; {spec.shown} would make about {spec.partitions} of {average_text(total, spec.partitions)}. "
        "Old files move with a compaction (rewrite_all => true)",
        action=f"ALTER TABLE {facts.spark_name} {spec.clause}",
        gain=f"a filter on one partition reads {average_text(total, spec.partitions)} instead of "
        f"{average_text(total, partitions)}",
        weight=0.4,
    )


def _current(facts: TableFacts) -> list[LiveFile]:
    return [file for file in facts.inventory.files if file.spec_id == facts.metadata.default_spec_id]


def _fields(facts: TableFacts) -> tuple[PartitionField, ...]:
    return tuple(facts.metadata.specs()[facts.metadata.default_spec_id].fields)


def _coarser(facts: TableFacts, files: list[LiveFile], total: int) -> _Spec | None:
    """Return the least change that gives partitions of a target file each; dropping a field is the last resort."""
    fields = _fields(facts)
    wanted = max(1, total // facts.target_bytes)
    choices: list[_Spec] = []
    for index, field in enumerate(fields):
        others = {tuple(v for i, v in enumerate(file.partition) if i != index) for file in files}
        if (
            not isinstance(field.transform, (IdentityTransform, BucketTransform))
            and str(field.transform) in _TIME_UNITS
        ) or (isinstance(field.transform, IdentityTransform) and isinstance(_type_of(facts, field), DateType)):
            choices += _coarser_times(facts, files, index, field)
        elif isinstance(field.transform, BucketTransform):
            buckets = max(1, field.transform.num_buckets * wanted // max(1, len(_values(files))))
            if 1 < buckets < field.transform.num_buckets:
                column = _column(facts, field)
                choices.append(
                    _Spec(_replace(field, f"bucket({buckets}, {column})"), len(others) * buckets, f"{buckets} buckets")
                )
        choices.append(
            _Spec(f"DROP PARTITION FIELD {quoted(field.name)}", max(1, len(others)), f"without {field.name}")
        )
    fitting = [choice for choice in choices if choice.partitions <= max(1, 2 * wanted)]
    if fitting:
        return max(fitting, key=lambda choice: (choice.partitions, not choice.clause.startswith("DROP")))
    return min(choices, key=lambda choice: choice.partitions, default=None)


def _coarser_times(facts: TableFacts, files: list[LiveFile], index: int, field: PartitionField) -> list[_Spec]:
    unit = "day" if isinstance(field.transform, IdentityTransform) else str(field.transform)
    choices = []
    for coarse in _TIME_UNITS[_TIME_UNITS.index(unit) + 1 :]:
        count = len(
            {
                (*file.partition[:index], _truncated(file.partition[index], unit, coarse), *file.partition[index + 1 :])
                for file in files
            }
        )
        choices.append(_Spec(_replace(field, f"{coarse}s({_column(facts, field)})"), count, f"{coarse}s"))
    return choices


def _truncated(value: object, unit: str, coarse: str) -> object:
    """Return the ordinal of the coarser unit that holds an ordinal of a finer one."""
    if not isinstance(value, int):
        return value.year if isinstance(value, dt.date) and coarse == "year" else value and str(value)[:7]
    if unit == "month":
        return value // 12
    days = value // 24 if unit == "hour" else value
    if coarse == "day":
        return days
    try:
        day = _EPOCH + dt.timedelta(days=days)
    except OverflowError:
        return days // (30 if coarse == "month" else 365)
    return day.year if coarse == "year" else day.year * 12 + day.month


def _finer(facts: TableFacts, total: int, partitions: int) -> _Spec | None:
    """Return a spec whose partitions still hold some target files each: a finer time unit, more buckets, or a field."""
    most = total / (_LEAST_TARGETS * facts.target_bytes)
    for field in _fields(facts):
        unit = str(field.transform)
        if unit in _TIME_UNITS[1:]:
            units = _TIME_UNITS[: _TIME_UNITS.index(unit)]
            if isinstance(_type_of(facts, field), DateType):
                units = tuple(name for name in units if name != "hour")
            for fine in units:
                count = round(partitions * _UNIT_DAYS[unit] / _UNIT_DAYS[fine])
                if count <= most:
                    return _Spec(_replace(field, f"{fine}s({_column(facts, field)})"), count, f"{fine}s")
            return None
        if isinstance(field.transform, BucketTransform):
            buckets = int(field.transform.num_buckets * most / partitions)
            if buckets > field.transform.num_buckets:
                clause = _replace(field, f"bucket({buckets}, {_column(facts, field)})")
                return _Spec(clause, partitions * buckets // field.transform.num_buckets, f"{buckets} buckets")
    return _new_time_field(facts, partitions, most)


def _new_time_field(facts: TableFacts, partitions: int, most: float) -> _Spec | None:
    """Return a partition field on the time column that follows the order of arrival best."""
    best: tuple[float, str, float] | None = None
    for column in facts.metadata.schema().fields:
        if not isinstance(column.field_type, _TIME_TYPES):
            continue
        known = [bound for bound in facts.bounds.of(column.field_id, column.field_type) if bound is not None]
        if not known or len(known) * 2 < len(facts.bounds.files):
            continue
        scale = 1 if isinstance(column.field_type, DateType) else _MICROS_A_DAY
        span = (max(high for _, high in known) - min(low for low, _ in known)) / scale
        width = sum(high - low for low, high in known) / scale / len(known) / span if span else 1.0
        if best is None or width < best[0]:
            best = (width, column.name, span)
    if best is None:
        return None
    _, name, span = best
    for unit in _TIME_UNITS[1:]:
        count = round(partitions * max(1.0, span / _UNIT_DAYS[unit]))
        if partitions < count <= most:
            return _Spec(f"ADD PARTITION FIELD {unit}s({quoted(name)})", count, f"{unit}s({name})")
    return None


def _values(files: list[LiveFile]) -> set[object]:
    return {exact_partition_key(file.partition) for file in files}


def _replace(field: PartitionField, transform: str) -> str:
    return f"REPLACE PARTITION FIELD {quoted(field.name)} WITH {transform}"


def _column(facts: TableFacts, field: PartitionField) -> str:
    name = facts.metadata.schema().find_column_name(field.source_id) or field.name
    return ".".join(quoted(part) for part in name.split(".")) if "." in name else quoted(name)


def _type_of(facts: TableFacts, field: PartitionField) -> IcebergType | None:
    try:
        return facts.metadata.schema().find_type(field.source_id)
    except ValueError:
        return None
