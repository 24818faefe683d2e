"""Iceberg's retention rules: which snapshots and refs expire, as a pure function of the metadata."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRef, SnapshotRefType
from pyiceberg.table.snapshots import Snapshot

from iceberg_compact_sql.errors import IcebergError, InvalidArgumentError, UnsupportedError
from iceberg_compact_sql.table.properties import GC_ENABLED, MAX_REF_AGE_MS, MAX_SNAPSHOT_AGE_MS, MIN_SNAPSHOTS_TO_KEEP

_DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class ExpiryRequest:
    """What the user asked to expire; None means the table's `history.expire.*` property.

    As in Iceberg, explicit ids expire in addition to the snapshots that are too old.
    """

    now_ms: int
    older_than_ms: int | None = None
    retain_last: int | None = None
    snapshot_ids: tuple[int, ...] = ()
    clean_expired_metadata: bool = False
    ignore_unknown_ids: bool = False

    def __post_init__(self) -> None:
        if self.retain_last is not None and self.retain_last < 1:
            raise InvalidArgumentError(
                f"retain_last is {self.retain_last} but must be at least 1",
                argument="retain_last",
                value=self.retain_last,
                hint="The newest snapshot of each branch is always kept.",
            )


@dataclass(frozen=True, slots=True)
class Retention:
    """Expired and kept snapshot ids in the order of the metadata, and the names of expired refs."""

    expired: tuple[int, ...]
    kept: tuple[int, ...]
    removed_refs: tuple[str, ...]


def decide(metadata: TableMetadata, request: ExpiryRequest) -> Retention:
    """Apply the rules of Iceberg's RemoveSnapshots; requested ids that the metadata does not have are ignored.

    main is always kept; another ref expires when its head is older than its maximum age. On each remaining branch
    ancestors are kept while they are young enough or fewer than the minimum are kept. Settings of the branch override
    those of the table. A snapshot that no remaining ref leads to (staged, rolled back) is kept only if it is younger
    than the cutoff.
    """
    snapshots = {snapshot.snapshot_id: snapshot for snapshot in metadata.snapshots}
    older_than_ms = request.older_than_ms
    if older_than_ms is None:
        older_than_ms = request.now_ms - MAX_SNAPSHOT_AGE_MS.of(metadata.properties)
    min_snapshots = request.retain_last or MIN_SNAPSHOTS_TO_KEEP.of(metadata.properties)
    refs = _remaining_refs(metadata, snapshots, request.now_ms)
    explicit = frozenset(request.snapshot_ids)
    _refuse_heads(refs, explicit)

    kept: set[int] = {ref.snapshot_id for ref in refs.values()}
    referenced = set(kept)
    for ref in refs.values():
        if ref.snapshot_ref_type == SnapshotRefType.BRANCH:
            cutoff_ms = older_than_ms if ref.max_snapshot_age_ms is None else request.now_ms - ref.max_snapshot_age_ms
            keep_at_least = ref.min_snapshots_to_keep or min_snapshots
            lineage = list(_ancestors(snapshots, ref.snapshot_id))
            referenced.update(ancestor.snapshot_id for ancestor in lineage)
            for position, ancestor in enumerate(lineage):
                if position >= keep_at_least and ancestor.timestamp_ms < cutoff_ms:
                    break
                kept.add(ancestor.snapshot_id)
    kept.update(
        snapshot.snapshot_id
        for snapshot in metadata.snapshots
        if snapshot.snapshot_id not in referenced and snapshot.timestamp_ms >= older_than_ms
    )
    kept -= explicit
    return Retention(
        expired=tuple(snapshot_id for snapshot_id in snapshots if snapshot_id not in kept),
        kept=tuple(snapshot_id for snapshot_id in snapshots if snapshot_id in kept),
        removed_refs=tuple(name for name in metadata.refs if name not in refs),
    )


def check_request(metadata: TableMetadata, request: ExpiryRequest) -> None:
    """Refuse a table that does not allow clean-up, and ids that it does not have."""
    refuse_without_gc(metadata)
    if not request.ignore_unknown_ids:
        refuse_unknown_ids(metadata, request.snapshot_ids)


def refuse_unknown_ids(metadata: TableMetadata, snapshot_ids: Iterable[int]) -> None:
    """Refuse ids of snapshots that the table does not have."""
    known = {snapshot.snapshot_id for snapshot in metadata.snapshots}
    for snapshot_id in snapshot_ids:
        if snapshot_id not in known:
            raise InvalidArgumentError(
                f"snapshot_ids names {snapshot_id}, which the table does not have",
                argument="snapshot_ids",
                value=snapshot_id,
                hint=f"Snapshots it has: {len(known)}; their ids are in its metadata table `snapshots`.",
            )


def refuse_without_gc(metadata: TableMetadata) -> None:
    """Refuse to delete files of a table with gc.enabled = false: other tables may need them."""
    if not GC_ENABLED.of(metadata.properties):
        raise UnsupportedError(
            "the table has gc.enabled = false: deleting its files may harm other tables",
            argument=GC_ENABLED.name,
            hint="Set gc.enabled to true only if no other table shares these files.",
        )


def _remaining_refs(metadata: TableMetadata, snapshots: Mapping[int, Snapshot], now_ms: int) -> dict[str, SnapshotRef]:
    default_age_ms = MAX_REF_AGE_MS.of(metadata.properties)
    remaining = {}
    for name, ref in metadata.refs.items():
        head = snapshots.get(ref.snapshot_id)
        age_limit_ms = default_age_ms if ref.max_ref_age_ms is None else ref.max_ref_age_ms
        if name == MAIN_BRANCH or (head is not None and now_ms - head.timestamp_ms <= age_limit_ms):
            remaining[name] = ref
    return remaining


def _refuse_heads(refs: Mapping[str, SnapshotRef], explicit: frozenset[int]) -> None:
    for name, ref in refs.items():
        if ref.snapshot_id in explicit:
            what = "the current snapshot" if name == MAIN_BRANCH else f"the head of {ref.snapshot_ref_type} {name}"
            raise InvalidArgumentError(
                f"snapshot_ids names {ref.snapshot_id}, which is {what}",
                argument="snapshot_ids",
                value=ref.snapshot_id,
                hint="Leave it out, or drop or move the ref first.",
                iceberg=IcebergError(
                    f"Cannot expire {ref.snapshot_id}. Still referenced by refs: [{', '.join(_refs_of(refs, ref))}]"
                ),
            )


def _refs_of(refs: Mapping[str, SnapshotRef], ref: SnapshotRef) -> list[str]:
    """The names of all refs with the same head."""
    return [name for name, other in refs.items() if other.snapshot_id == ref.snapshot_id]


def _ancestors(snapshots: Mapping[int, Snapshot], head: int) -> Iterator[Snapshot]:
    seen: set[int] = set()
    snapshot_id: int | None = head
    while snapshot_id is not None and snapshot_id in snapshots and snapshot_id not in seen:
        seen.add(snapshot_id)
        yield snapshots[snapshot_id]
        snapshot_id = snapshots[snapshot_id].parent_snapshot_id
