"""Which snapshots and refs go: Iceberg's retention rules as a pure function of the metadata."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRef, SnapshotRefType
from pyiceberg.table.snapshots import Snapshot

from iceberg_compact_sql.errors import InvalidArgumentError, UnsupportedError
from iceberg_compact_sql.units import LONG_MAX

_DAY_MS = 86_400_000
MAX_SNAPSHOT_AGE_MS = ("history.expire.max-snapshot-age-ms", 5 * _DAY_MS)
MIN_SNAPSHOTS_TO_KEEP = ("history.expire.min-snapshots-to-keep", 1)
MAX_REF_AGE_MS = ("history.expire.max-ref-age-ms", LONG_MAX)


@dataclass(frozen=True, slots=True)
class ExpiryRequest:
    """What the user asked to expire; None leaves it to the table's `history.expire.*` properties.

    As in Iceberg, explicit ids come on top of the age: the table's own age limit still applies beside them.
    """

    now_ms: int
    older_than_ms: int | None = None
    retain_last: int | None = None
    snapshot_ids: tuple[int, ...] = ()
    clean_expired_metadata: bool = False

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
    """Ids in the order of the metadata, and the names of refs that go."""

    expired: tuple[int, ...]
    kept: tuple[int, ...]
    removed_refs: tuple[str, ...]


def decide(metadata: TableMetadata, request: ExpiryRequest) -> Retention:
    """Apply the rules of Iceberg's RemoveSnapshots; ids that the metadata does not hold (any more) are left out.

    main always stays; another ref goes when its head is older than its maximum age. On each remaining branch
    ancestors stay while fewer than the minimum are kept or they are young enough, the branch's own settings first.
    A snapshot that no remaining ref leads to (staged, rolled back) stays only if it is younger than the cutoff.
    """
    snapshots = {snapshot.snapshot_id: snapshot for snapshot in metadata.snapshots}
    older_than_ms = request.older_than_ms
    if older_than_ms is None:
        older_than_ms = request.now_ms - _setting(metadata, MAX_SNAPSHOT_AGE_MS)
    least = request.retain_last or _setting(metadata, MIN_SNAPSHOTS_TO_KEEP)
    refs = _remaining_refs(metadata, snapshots, request.now_ms)
    explicit = frozenset(request.snapshot_ids)
    _refuse_heads(refs, explicit)

    kept: set[int] = {ref.snapshot_id for ref in refs.values()}
    referenced = set(kept)
    for ref in refs.values():
        if ref.snapshot_ref_type == SnapshotRefType.BRANCH:
            cutoff_ms = older_than_ms if ref.max_snapshot_age_ms is None else request.now_ms - ref.max_snapshot_age_ms
            keep_at_least = ref.min_snapshots_to_keep or least
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
    """Refuse to delete files of a table that says others may need them."""
    if metadata.properties.get("gc.enabled", "true").lower() != "true":
        raise UnsupportedError(
            "the table has gc.enabled = false: deleting its files may harm other tables",
            hint="Set gc.enabled to true only if no other table shares these files.",
        )


def _remaining_refs(metadata: TableMetadata, snapshots: Mapping[int, Snapshot], now_ms: int) -> dict[str, SnapshotRef]:
    default_age_ms = _setting(metadata, MAX_REF_AGE_MS)
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
            )


def _ancestors(snapshots: Mapping[int, Snapshot], head: int) -> Iterator[Snapshot]:
    seen: set[int] = set()
    at: int | None = head
    while at is not None and at in snapshots and at not in seen:
        seen.add(at)
        yield snapshots[at]
        at = snapshots[at].parent_snapshot_id


def _setting(metadata: TableMetadata, setting: tuple[str, int]) -> int:
    name, default = setting
    text = metadata.properties.get(name)
    try:
        return default if text is None else int(text)
    except ValueError:
        raise UnsupportedError(f"table property {name} is {text!r}, not a number", hint="Correct it first.") from None
