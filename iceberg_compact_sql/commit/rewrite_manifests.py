"""Manifests written anew: entries clustered by partition, in manifests of the target size."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from pyiceberg.manifest import ManifestContent, ManifestEntry, ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import ancestors_of

from iceberg_compact_sql.commit.commit_loop import Attempted, commit_snapshot
from iceberg_compact_sql.commit.manifest_order import Spanning, lookup_bytes, partition_order, span_of, tangles
from iceberg_compact_sql.commit.snapshot_draft import (
    Head,
    ManifestDraft,
    ManifestReader,
    SnapshotDraft,
    existing_entry,
    has_live_files,
    read_head,
)
from iceberg_compact_sql.errors import (
    CommitConflictError,
    InvalidArgumentError,
    NotFoundError,
    UnsupportedError,
    did_you_mean,
)
from iceberg_compact_sql.pyiceberg_internals.manifest_writer import partition_struct
from iceberg_compact_sql.table.summary_keys import MANIFESTS

_TARGET_PROPERTY = "commit.manifest.target-size-bytes"
_TARGET_BYTES = 8 * 1024**2
# Manifests are split, or put in order, only where a reader then opens half as much: a little more than the target,
# or a little overlap, is not worth a rewrite.
_WORTHWHILE = 2
Shelf = tuple[ManifestContent, int]


@dataclass(frozen=True, slots=True)
class RegroupRequest:
    """Which manifests to look at, and the partition fields by which their entries are clustered first."""

    spec_id: int | None = None
    sort_by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Regrouping:
    """What a rewrite of manifests replaces and how many it makes of them."""

    replaced: int
    made: int


@dataclass(frozen=True, slots=True)
class Batch:
    """Manifests of one shelf (content and spec) that are written anew together, and how many come of them."""

    content: ManifestContent
    spec_id: int
    manifests: Sequence[ManifestFile]
    outputs: int
    # Positions of the spec's partition fields, the one that entries are clustered by first.
    order: tuple[int, ...]


@dataclass(slots=True)
class _Builder:
    request: RegroupRequest
    summary: Mapping[str, str]
    reader: ManifestReader = field(default_factory=ManifestReader)

    def build(self, head: Head, snapshot_id: int) -> SnapshotDraft | None:
        """The draft on this head, or None when nothing is to be gained."""
        batches = worthwhile_batches(head, self.request, self.reader)
        if not batches:
            return None
        replaced = {manifest.manifest_path for batch in batches for manifest in batch.manifests}
        kept = [m for m in head.manifests if m.manifest_path not in replaced and has_live_files(m)]
        drafts: list[ManifestDraft] = []
        entries = 0
        for batch in batches:
            live = [existing_entry(e) for manifest in batch.manifests for e in self.reader.entries(head, manifest)]
            _check_counts(batch.manifests, live)
            entries += len(live)
            pieces = _pieces(live, batch.outputs, batch.order)
            drafts += [ManifestDraft(batch.content, batch.spec_id, piece) for piece in pieces]
        counts = {
            "manifests-created": str(len(drafts)),
            "manifests-kept": str(len(kept)),
            "manifests-replaced": str(len(replaced)),
            "entries-processed": str(entries),
        }
        return SnapshotDraft(
            [*drafts, *kept],
            properties={**self.summary, MANIFESTS: _kind(head.metadata, self.request), **counts},
            tag=Regrouping(len(replaced), len(drafts)),
        )


def regroup_manifests(
    table: Table, request: RegroupRequest, *, branch: str, summary: Mapping[str, str]
) -> tuple[Attempted, Regrouping]:
    """Commit the manifests of a branch's head in better order; every entry keeps every field.

    A no-op, without a commit, where readers would gain nothing: no fewer manifests, none far above the target size,
    and none that reach into each other's partitions.
    """
    check_request(table.metadata, request)
    builder = _Builder(request, summary)
    attempted = commit_snapshot(table, branch=branch, table_uuid=str(table.metadata.table_uuid), build=builder.build)
    if attempted.interrupted is not None:
        raise attempted.interrupted
    done = attempted.draft.tag if attempted.draft is not None else Regrouping(0, 0)
    return attempted, done


def plan_regrouping(table: Table, request: RegroupRequest, *, branch: str) -> Regrouping:
    """What `regroup_manifests` would do on the head as it is; reads the manifest list only."""
    check_request(table.metadata, request)
    head = read_head(table, branch)
    if head is None:
        return Regrouping(0, 0)
    batches = worthwhile_batches(head, request, ManifestReader())
    return Regrouping(sum(len(batch.manifests) for batch in batches), sum(batch.outputs for batch in batches))


def check_request(metadata: TableMetadata, request: RegroupRequest) -> None:
    """Refuse a spec that the table does not have, and fields that the spec does not have."""
    specs = metadata.specs()
    if request.spec_id is not None and request.spec_id not in specs:
        known = ", ".join(str(spec_id) for spec_id in specs)
        raise NotFoundError(
            f"the table has no partition spec {request.spec_id}",
            argument="spec_id",
            value=request.spec_id,
            hint=f"It has: {known}.",
        )
    spec = specs[metadata.default_spec_id if request.spec_id is None else request.spec_id]
    names = [one.name for one in spec.fields]
    for name in request.sort_by:
        if name not in names:
            meant = did_you_mean(name, names)
            raise InvalidArgumentError(
                f"sort_by names '{name}', which is not a partition field of spec {spec.spec_id}",
                argument="sort_by",
                value=name,
                hint=f"Its fields are: {', '.join(names)}. {meant or ''}".strip() if names else "It has no fields.",
            )


def worthwhile_batches(head: Head, request: RegroupRequest, reader: ManifestReader) -> list[Batch]:
    """What is to be written anew so that readers open fewer or smaller manifests; nothing else."""
    shelves: dict[Shelf, list[ManifestFile]] = defaultdict(list)
    for manifest in head.manifests:
        if request.spec_id in (None, manifest.partition_spec_id):
            shelves[manifest.content, manifest.partition_spec_id].append(manifest)
    since = _added_since_regrouping(head, request)
    return [
        batch
        for shelf, manifests in shelves.items()
        if since is None or any(manifest.added_snapshot_id in since for manifest in manifests)
        for batch in _batches(head, shelf, manifests, request, reader)
    ]


def _batches(
    head: Head, shelf: Shelf, manifests: list[ManifestFile], request: RegroupRequest, reader: ManifestReader
) -> Iterator[Batch]:
    orders = list(_orders(head.metadata, shelf[1], request.sort_by))
    order = orders[0]
    if len(manifests) > outputs_for(head, manifests):
        chosen = [manifests]
    else:
        chosen = _tangled(head, manifests, order, at_any_price=bool(request.sort_by))
        # In order by another field already: a new order would take away what readers have.
        in_order = (one for one in orders[1:] if not _tangled(head, manifests, one, at_any_price=False))
        if chosen and (other := next(in_order, None)) is not None:
            chosen, order = [], other
        taken = {manifest.manifest_path for batch in chosen for manifest in batch}
        large = [m for m in manifests if m.manifest_length > _WORTHWHILE * _target_bytes(head.metadata)]
        chosen += [[m] for m in large if m.manifest_path not in taken and _live_files(head, m, reader) > 1]
    for batch in chosen:
        live = sum(_live_files(head, manifest, reader) for manifest in batch)
        yield Batch(*shelf, batch, min(live, outputs_for(head, batch)), order)


def _orders(metadata: TableMetadata, spec_id: int, sort_by: Sequence[str]) -> Iterator[tuple[int, ...]]:
    """In which orders of partition fields entries may be clustered; the first one is how they are written.

    A spec that is not the one asked about may lack some of the fields.
    """
    names = [one.name for one in metadata.specs()[spec_id].fields]
    first = [names.index(name) for name in dict.fromkeys(sort_by) if name in names]
    whole = tuple(first + [at for at in range(len(names)) if at not in first])
    yield whole
    if not sort_by:
        yield from ((at, *whole[:at], *whole[at + 1 :]) for at in whole[1:])


def _tangled(
    head: Head, manifests: Sequence[ManifestFile], order: Sequence[int], *, at_any_price: bool
) -> list[list[ManifestFile]]:
    """Manifests that reach into each other's partitions so that a lookup opens much more than it needs to."""
    if len(manifests) < 2 or not order:
        return []
    spec = head.metadata.specs()[manifests[0].partition_spec_id]
    try:
        types = [one.field_type for one in partition_struct(head.metadata, spec).fields]
    except UnsupportedError:
        # No schema knows the source of a partition field any more: nobody can write these manifests anew.
        return []
    found = []
    for tangle in tangles([Spanning(manifest, span_of(manifest, types, order)) for manifest in manifests]):
        batch = [one.manifest for one in tangle]
        if len(batch) > 1:
            outputs = outputs_for(head, batch)
            needed = sum(manifest.manifest_length for manifest in batch) / max(1, outputs)
            if at_any_price or outputs < len(batch) or lookup_bytes(tangle) >= _WORTHWHILE * needed:
                found.append(batch)
    return found


def _added_since_regrouping(head: Head, request: RegroupRequest) -> frozenset[int] | None:
    """The snapshots after the last regrouping of the same kind; None when there was none that is still known.

    What it left as it is was right then: manifests that came in one go are not taken apart for being smaller than
    their inputs let expect.
    """
    kinds = {_kind(head.metadata, request)}
    since: list[int] = []
    for snapshot in ancestors_of(head.snapshot, head.metadata):
        told = snapshot.summary[MANIFESTS] if snapshot.summary is not None else None
        if told is not None and (told in kinds or (not request.sort_by and told.partition(" sort_by=")[0] in kinds)):
            return frozenset(since)
        since.append(snapshot.snapshot_id)
    return None


def _kind(metadata: TableMetadata, request: RegroupRequest) -> str:
    spec = "all" if request.spec_id is None else request.spec_id
    told = f"target={_target_bytes(metadata)} spec={spec}"
    return f"{told} sort_by={','.join(dict.fromkeys(request.sort_by))}" if request.sort_by else told


def outputs_for(head: Head, manifests: Sequence[ManifestFile]) -> int:
    """How many manifests of the target size hold these; none where nothing in them is live."""
    live = [manifest for manifest in manifests if has_live_files(manifest)]
    if not live:
        return 0
    return max(1, -(-sum(manifest.manifest_length for manifest in live) // _target_bytes(head.metadata)))


def _target_bytes(metadata: TableMetadata) -> int:
    text = metadata.properties.get(_TARGET_PROPERTY, "")
    return int(text) if text.isdigit() and int(text) else _TARGET_BYTES


def _live_files(head: Head, manifest: ManifestFile, reader: ManifestReader) -> int:
    counts = (manifest.added_files_count, manifest.existing_files_count)
    if counts[0] is None or counts[1] is None:
        # Version 1 allows lists without counts.
        return len(reader.entries(head, manifest))
    return counts[0] + counts[1]


def _pieces(entries: list[ManifestEntry], count: int, order: Sequence[int]) -> list[list[ManifestEntry]]:
    """Entries in the order of their partitions in so many pieces of about one size.

    A cut is moved to the end of a partition near by, so that one manifest has all of it.
    """
    if not count:
        return []
    keyed = sorted(((partition_order(e.data_file.partition, order), e) for e in entries), key=lambda pair: pair[0])
    reach = (len(entries) // count - 1) // 2
    cuts = [0]
    for even in (len(entries) * at // count for at in range(1, count)):
        near = sorted(range(even - reach, even + reach + 1), key=lambda at, even=even: abs(at - even))  # type: ignore[misc]
        cuts.append(next((at for at in near if keyed[at - 1][0] != keyed[at][0]), even))
    return [[entry for _, entry in keyed[start:end]] for start, end in pairwise([*cuts, len(entries)])]


def _check_counts(manifests: Sequence[ManifestFile], live: Sequence[ManifestEntry]) -> None:
    counts = [(m.added_files_count, m.existing_files_count) for m in manifests]
    if all(added is not None and existing is not None for added, existing in counts):
        listed = sum((added or 0) + (existing or 0) for added, existing in counts)
        if listed != len(live):
            raise CommitConflictError(
                f"the manifest list counts {listed} live files, but its manifests hold {len(live)}",
                hint="Nothing was changed; the table's metadata needs a look.",
            )
