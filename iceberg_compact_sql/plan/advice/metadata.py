"""Rules about metadata: snapshots, metadata files, manifests, and columns without bounds."""

from __future__ import annotations

import math
from collections.abc import Iterator

from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.types import BinaryType, BooleanType, FixedType, NestedField, PrimitiveType, StringType, UUIDType

from iceberg_compact_sql.plan.advice.model import Finding, Severity, TableFacts, average_text
from iceberg_compact_sql.plan.cost import Throughput, Work, estimate
from iceberg_compact_sql.plan.table_scores import MANY_SNAPSHOTS
from iceberg_compact_sql.table.properties import (
    GC_ENABLED,
    MANIFEST_TARGET_BYTES,
    MAX_SNAPSHOT_AGE_MS,
    METADATA_COMPRESSION,
)
from iceberg_compact_sql.units import format_bytes, format_duration

_DAY_MS = 86_400_000
# Expired snapshots from which an expiry is worth a commit.
_MANY_EXPIRED = 20
LARGE_METADATA_BYTES = 8 * 1024**2
_DELETE_AFTER_COMMIT = "write.metadata.delete-after-commit.enabled"
_PREVIOUS_VERSIONS = "write.metadata.previous-versions-max"
# Metadata files in the log from which the rule speaks; Iceberg keeps 100.
_MANY_METADATA_FILES = 50
_MIN_MANIFESTS = 20
_MANIFEST_RATIO = 4
_METRICS_DEFAULT = "write.metadata.metrics.default"
_METRICS_COLUMN = "write.metadata.metrics.column."
_MOST_NAMES = 5
# Types whose bounds are of no use, or that this package writes without bounds.
_WITHOUT_USEFUL_BOUNDS = (BooleanType, UUIDType, BinaryType, FixedType)


def snapshots(facts: TableFacts) -> Iterator[Finding]:
    """Snapshots that an expiry would remove, or that grow without limit."""
    total = len(facts.metadata.snapshots)
    if not GC_ENABLED.of(facts.properties):
        return
    age_ms = MAX_SNAPSHOT_AGE_MS.of(facts.properties)
    kept = {ref.snapshot_id for ref in facts.metadata.refs.values()}
    tags = sum(ref.snapshot_ref_type == SnapshotRefType.TAG for ref in facts.metadata.refs.values())
    old = [s for s in facts.snapshots_by_time if s.timestamp_ms < facts.now_ms - age_ms and s.snapshot_id not in kept]
    if len(old) < _MANY_EXPIRED and total < MANY_SNAPSHOTS:
        return
    size = f", metadata.json has {format_bytes(facts.metadata_bytes)}" if facts.metadata_bytes else ""
    severity: Severity = "high" if total >= MANY_SNAPSHOTS else "medium" if len(old) >= 100 else "low"
    if len(old) >= _MANY_EXPIRED:
        text, gone, arguments = f"{len(old)} of them are older than {format_duration(age_ms)}", len(old), ""
    else:
        recent = [s for s in facts.snapshots_by_time if s.timestamp_ms >= facts.now_ms - _DAY_MS]
        gone = max(0, total - len(recent) - len(kept))
        text = f"{len(recent)} of them are of the last day, and none is old enough to expire by default"
        arguments = "older_than => '1d', retain_last => 10"
    yield Finding(
        topic="snapshots",
        severity=severity,
        finding=f"{total} snapshots{f' and {tags} tags' if tags else ''}; {text}{size}",
        action=facts.call("expire_snapshots", arguments),
        gain=f"{gone} snapshots and the files that only they use",
        weight=total / MANY_SNAPSHOTS,
    )


def metadata_files(facts: TableFacts) -> Iterator[Finding]:
    """Old metadata.json files that nobody removes, and metadata.json files that are large."""
    log = len(facts.metadata.metadata_log)
    size = facts.metadata_bytes or 0
    enabled = facts.properties.get(_DELETE_AFTER_COMMIT, "false").strip().lower() == "true"
    if not enabled and log >= _MANY_METADATA_FILES:
        a_day = _commits_a_day(facts)
        waste = f", about {format_bytes(a_day * size)} a day" if size and a_day >= 1 else ""
        yield Finding(
            topic="metadata",
            severity="medium" if a_day * size > 1024**3 else "low",
            finding=f"{log} old metadata.json files are listed, and no commit removes one: "
            f"{_DELETE_AFTER_COMMIT} is not true",
            action=facts.set_properties({_DELETE_AFTER_COMMIT: "true", _PREVIOUS_VERSIONS: "100"}),
            gain=f"one metadata file fewer for each commit{waste}",
            weight=min(1.0, log / 1000),
        )
    if size >= LARGE_METADATA_BYTES and METADATA_COMPRESSION.of(facts.properties) == "none":
        yield Finding(
            topic="metadata",
            severity="medium" if size >= 4 * LARGE_METADATA_BYTES else "low",
            finding=f"metadata.json has {format_bytes(size)}, and every commit writes it again without compression",
            action=facts.set_properties({METADATA_COMPRESSION.name: "gzip"}),
            gain=f"about {format_bytes(size * 0.9)} less for each commit and for each reader",
            weight=min(1.0, size / 100 / 1024**2),
        )


def manifests(facts: TableFacts) -> Iterator[Finding]:
    """Manifests that are far smaller than their target size, so that every plan opens too many."""
    target = MANIFEST_TARGET_BYTES.of(facts.properties)
    data = [manifest.size_bytes for manifest in facts.bounds.manifests if not manifest.deletes]
    specs = len({file.spec_id for file in facts.bounds.files}) or 1
    fitting = max(specs, math.ceil(sum(data) / target))
    if len(data) < _MIN_MANIFESTS or len(data) < _MANIFEST_RATIO * fitting:
        return
    work = Work(len(data), sum(data), copied_bytes=sum(data), outputs=fitting)
    yield Finding(
        topic="manifests",
        severity="high" if len(data) >= 500 else "medium" if len(data) >= 100 else "low",
        finding=f"{len(data)} manifests of {average_text(sum(data), len(data))} on average; "
        f"{fitting} of {format_bytes(target)} would hold the same entries",
        action=facts.call("rewrite_manifests"),
        gain=f"up to {len(data) - fitting} requests fewer in each plan",
        cost_dollars=estimate(work, facts.prices, Throughput()).dollars,
        weight=1 - fitting / len(data),
    )


def missing_bounds(facts: TableFacts) -> Iterator[Finding]:
    """Columns that most files have no bounds of, so that no filter on them can skip a file."""
    files = facts.bounds.files
    if not files:
        return
    total = sum(file.size_bytes for file in files)
    unbounded: list[NestedField] = []
    for column in facts.metadata.schema().fields:
        if not isinstance(column.field_type, PrimitiveType) or isinstance(column.field_type, _WITHOUT_USEFUL_BOUNDS):
            continue
        field_id = column.field_id
        lacking = sum(f.size_bytes for f in files if field_id not in f.lower and not f.only_nulls(field_id))
        if lacking * 2 >= total:
            unbounded.append(column)
    if not unbounded:
        return
    keys = _key_columns(facts)
    important = [column for column in unbounded if column.field_id in keys]
    shown = [column.name for column in (important or unbounded)]
    names = ", ".join(shown[:_MOST_NAMES]) + (
        f" and {len(shown) - _MOST_NAMES} more" if len(shown) > _MOST_NAMES else ""
    )
    every = len(unbounded) == len(facts.metadata.schema().fields)
    settings = {
        f"{_METRICS_COLUMN}{column.name}": "truncate(16)" if isinstance(column.field_type, StringType) else "full"
        for column in (important or unbounded)[:_MOST_NAMES]
    }
    why = " (partition, sort or identifier columns)" if important else ""
    yield Finding(
        topic="bounds",
        severity="medium" if important else "low",
        finding=f"most files have no bounds of {names}{why}: a filter on them reads every file",
        action=facts.set_properties({_METRICS_DEFAULT: "truncate(16)"} if every else settings),
        gain="new and rewritten files can be skipped by these columns",
        weight=0.5 if important else 0.0,
    )


def _key_columns(facts: TableFacts) -> set[int]:
    metadata = facts.metadata
    keys = set(metadata.schema().identifier_field_ids)
    spec = metadata.specs().get(metadata.default_spec_id)
    keys |= {field.source_id for field in spec.fields} if spec is not None else set()
    for order in metadata.sort_orders:
        if order.order_id == metadata.default_sort_order_id:
            keys |= {field.source_id for field in order.fields}
    return keys


def _commits_a_day(facts: TableFacts) -> float:
    times = [entry.timestamp_ms for entry in facts.metadata.metadata_log]
    span = max(times) - min(times) if len(times) > 1 else 0
    return len(times) / max(span / _DAY_MS, 1.0)
