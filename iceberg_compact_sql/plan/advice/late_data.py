"""The rule about late data: partitions that are written to after they have ended, and how long to wait for them."""

from __future__ import annotations

import datetime as dt
import itertools
import math
from collections.abc import Iterator

from iceberg_compact_sql.plan.advice.model import Finding, TableFacts, share_text
from iceberg_compact_sql.table.partition_keys import exact_partition_key
from iceberg_compact_sql.units import format_duration

_HOUR_MS = 3_600_000
_DAY_MS = 24 * _HOUR_MS
_EPOCH = dt.date(1970, 1, 1)
_MIN_PARTITIONS = 5
_LATE_SHARE = 0.1
# A commit this long after the end of its partition is usual; a later one is late data.
_GRACE_MS = {"hour": _HOUR_MS // 4, "day": 2 * _HOUR_MS, "month": _DAY_MS, "year": 7 * _DAY_MS}
_COVERED = 0.95


def late_data(facts: TableFacts) -> Iterator[Finding]:
    """Partitions that got rows after their period was over, so that an early compaction has to run again."""
    spec = facts.metadata.specs().get(facts.metadata.default_spec_id)
    if spec is None:
        return
    place, unit = next(
        ((i, str(f.transform)) for i, f in enumerate(spec.fields) if str(f.transform) in _GRACE_MS), (-1, "")
    )
    if place < 0:
        return
    times = {
        snapshot.snapshot_id: snapshot.timestamp_ms
        for snapshot in facts.metadata.snapshots
        if snapshot.summary is not None and snapshot.summary.operation.value != "replace"
    }
    commits: dict[object, set[int]] = {}
    ends: dict[object, int] = {}
    for file in facts.inventory.files:
        time_ms = times.get(file.snapshot_id) if file.snapshot_id is not None else None
        value = file.partition[place] if file.spec_id == spec.spec_id else None
        if time_ms is None or not isinstance(value, int):
            continue
        key = exact_partition_key(file.partition)
        commits.setdefault(key, set()).add(time_ms)
        ends[key] = _end_ms(value, unit)
    # Only partitions that are over can have late data.
    closed = [key for key in commits if ends[key] + _GRACE_MS[unit] < facts.now_ms]
    late = [key for key in closed if max(commits[key]) > ends[key] + _GRACE_MS[unit]]
    on_time = [key for key in closed if min(commits[key]) <= ends[key] + _GRACE_MS[unit]]
    returned = [key for key in late if key in set(on_time)]
    if len(closed) < _MIN_PARTITIONS or len(returned) < max(2, _LATE_SHARE * len(closed)):
        return
    gaps = sorted(gap for key in returned for gap in _gaps(sorted(commits[key])))
    wait_hours = max(1, math.ceil(gaps[min(len(gaps) - 1, int(_COVERED * len(gaps)))] / _HOUR_MS))
    latest = max(max(commits[key]) - ends[key] for key in returned)
    share = len(returned) / len(closed)
    yield Finding(
        topic="late data",
        severity="medium" if share >= 0.3 else "low",
        finding=f"{len(returned)} of {len(closed)} partitions ({share_text(share)}) were written to after they had "
        f"ended, up to {format_duration(latest)} later; {_COVERED:.0%} of the pauses between their writes are at most "
        f"{wait_hours} hours",
        action=facts.compact(f"idle => '{wait_hours}h'"),
        gain=f"{len(returned)} partitions are compacted once instead of twice",
        weight=share,
    )


def _gaps(times: list[int]) -> list[int]:
    return [later - earlier for earlier, later in itertools.pairwise(times)]


def _end_ms(value: int, unit: str) -> int:
    """Return the first millisecond after the period of a time partition."""
    if unit == "hour":
        return (value + 1) * _HOUR_MS
    if unit == "day":
        return (value + 1) * _DAY_MS
    months = (value + 1) * (12 if unit == "year" else 1)
    year, month = divmod(months, 12)
    try:
        return (dt.date(1970 + year, month + 1, 1) - _EPOCH).days * _DAY_MS
    except ValueError:
        # Outside Python's calendar: such a partition never ends.
        return 2**62
