"""Rewrite manifests: entries clustered by partition, in manifests of the target size."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from pyiceberg.manifest import ManifestContent, ManifestEntry, ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import ancestors_of

from iceberg_compact_sql.commit.commit_snapshot import SnapshotCommitResult, commit_snapshot
from iceberg_compact_sql.commit.manifest_order import (
    RangedManifest,
    lookup_bytes,
    overlapping_groups,
    partition_range,
    partition_sort_key,
)
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
    IcebergError,
    InvalidArgumentError,
    NotFoundError,
    UnsupportedError,
    did_you_mean,
)
from iceberg_compact_sql.pyiceberg_internals.manifest_writer import partition_struct
from iceberg_compact_sql.table.properties import MANIFEST_TARGET_BYTES
from iceberg_compact_sql.table.summary_keys import MANIFESTS

# Manifests are split or sorted only if a reader then opens at most half as many bytes: a manifest a little above the
# target, or a small overlap, is not worth a rewrite.
_MIN_GAIN = 2
ContentAndSpec = tuple[ManifestContent, int]


@dataclass(frozen=True, slots=True)
class ManifestRewriteRequest:
    """Which manifests to rewrite, and the partition fields by which their entries are clustered first."""

    spec_id: int | None = None
    sort_by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ManifestRewriteCounts:
    """How many manifests a rewrite replaces, and how many it writes."""

    replaced: int
    written: int


@dataclass(frozen=True, slots=True)
class Batch:
    """Manifests of one content and spec that are rewritten together, and into how many."""

    content: ManifestContent
    spec_id: int
    manifests: Sequence[ManifestFile]
    outputs: int
    # Positions of the spec's partition fields; entries are clustered by the first one first.
    order: tuple[int, ...]


@dataclass(slots=True)
class _Builder:
    request: ManifestRewriteRequest
    summary: Mapping[str, str]
    reader: ManifestReader = field(default_factory=ManifestReader)

    def build(self, head: Head, snapshot_id: int) -> SnapshotDraft | None:
        """Return the draft on this head, or None when a rewrite gains nothing."""
        batches = worthwhile_batches(head, self.request, self.reader)
        if not batches:
            return None
        replaced = {manifest.manifest_path for batch in batches for manifest in batch.manifests}
        kept = [m for m in head.manifests if m.manifest_path not in replaced and has_live_files(m)]
        drafts: list[ManifestDraft] = []
        entries = 0
        for batch in batches:
            live = [existing_entry(e) for _, entries in self.reader.all_entries(head, batch.manifests) for e in entries]
            _check_counts(batch.manifests, live)
            entries += len(live)
            parts = _split_entries(live, batch.outputs, batch.order)
            drafts += [ManifestDraft(batch.content, batch.spec_id, part) for part in parts]
        counts = {
            "manifests-created": str(len(drafts)),
            "manifests-kept": str(len(kept)),
            "manifests-replaced": str(len(replaced)),
            "entries-processed": str(entries),
        }
        return SnapshotDraft(
            [*drafts, *kept],
            properties={**self.summary, MANIFESTS: _rewrite_kind(head.metadata, self.request), **counts},
            tag=ManifestRewriteCounts(len(replaced), len(drafts)),
        )


def commit_manifest_rewrite(
    table: Table, request: ManifestRewriteRequest, *, branch: str, summary: Mapping[str, str]
) -> tuple[SnapshotCommitResult, ManifestRewriteCounts]:
    """Rewrite the manifests of a branch's head in better order, and commit them; every entry keeps every field.

    Commits nothing where readers would gain nothing: the number of manifests would stay, none is far above the target
    size, and their partition ranges do not overlap.
    """
    check_request(table.metadata, request)
    builder = _Builder(request, summary)
    result = commit_snapshot(table, branch=branch, table_uuid=str(table.metadata.table_uuid), build=builder.build)
    if result.interrupted is not None:
        raise result.interrupted
    done = result.draft.tag if result.draft is not None else ManifestRewriteCounts(0, 0)
    return result, done


def plan_manifest_rewrite(table: Table, request: ManifestRewriteRequest, *, branch: str) -> ManifestRewriteCounts:
    """Return what `commit_manifest_rewrite` would do on the current head; reads only the manifest list."""
    check_request(table.metadata, request)
    head = read_head(table, branch)
    if head is None:
        return ManifestRewriteCounts(0, 0)
    batches = worthwhile_batches(head, request, ManifestReader())
    return ManifestRewriteCounts(
        sum(len(batch.manifests) for batch in batches), sum(batch.outputs for batch in batches)
    )


def check_request(metadata: TableMetadata, request: ManifestRewriteRequest) -> None:
    """Raise for a spec that the table does not have, and for fields that the spec does not have."""
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
    names = [field.name for field in spec.fields]
    for name in request.sort_by:
        if name not in names:
            meant = did_you_mean(name, names)
            raise InvalidArgumentError(
                f"sort_by names '{name}', which is not a partition field of spec {spec.spec_id}",
                argument="sort_by",
                value=name,
                hint=f"Its fields are: {', '.join(names)}. {meant or ''}".strip() if names else "It has no fields.",
                iceberg=IcebergError(
                    "Cannot set manifest sorting because specified field(s) "
                    f"[{', '.join(field for field in request.sort_by if field not in names)}] "
                    "were not found in current partition spec"
                ),
            )


def worthwhile_batches(head: Head, request: ManifestRewriteRequest, reader: ManifestReader) -> list[Batch]:
    """Return the manifests to rewrite so that readers open fewer or smaller ones."""
    by_content_and_spec: dict[ContentAndSpec, list[ManifestFile]] = defaultdict(list)
    for manifest in head.manifests:
        if request.spec_id in (None, manifest.partition_spec_id):
            by_content_and_spec[manifest.content, manifest.partition_spec_id].append(manifest)
    since = _snapshots_since_rewrite(head, request)
    return [
        batch
        for content_and_spec, manifests in by_content_and_spec.items()
        if since is None or any(manifest.added_snapshot_id in since for manifest in manifests)
        for batch in _batches(head, content_and_spec, manifests, request, reader)
    ]


def _batches(
    head: Head,
    content_and_spec: ContentAndSpec,
    manifests: list[ManifestFile],
    request: ManifestRewriteRequest,
    reader: ManifestReader,
) -> Iterator[Batch]:
    orders = list(_orders(head.metadata, content_and_spec[1], request.sort_by))
    order = orders[0]
    if len(manifests) > outputs_for(head, manifests):
        batches = [manifests]
    else:
        batches = _overlapping(head, manifests, order, always=bool(request.sort_by))
        # Already sorted by another field: a new order would cost the readers that use it.
        sorted_orders = (other for other in orders[1:] if not _overlapping(head, manifests, other, always=False))
        if batches and (present := next(sorted_orders, None)) is not None:
            batches, order = [], present
        batched_paths = {manifest.manifest_path for batch in batches for manifest in batch}
        large = [m for m in manifests if m.manifest_length > _MIN_GAIN * _target_bytes(head.metadata)]
        batches += [[m] for m in large if m.manifest_path not in batched_paths and _live_files(head, m, reader) > 1]
    for batch in batches:
        live = sum(_live_files(head, manifest, reader) for manifest in batch)
        yield Batch(*content_and_spec, batch, min(live, outputs_for(head, batch)), order)


def _orders(metadata: TableMetadata, spec_id: int, sort_by: Sequence[str]) -> Iterator[tuple[int, ...]]:
    """Yield the orders of partition fields that count as sorted; entries are written in the first one.

    `sort_by` may name fields that this spec does not have.
    """
    names = [field.name for field in metadata.specs()[spec_id].fields]
    first = [names.index(name) for name in dict.fromkeys(sort_by) if name in names]
    whole = tuple(first + [at for at in range(len(names)) if at not in first])
    yield whole
    if not sort_by:
        yield from ((at, *whole[:at], *whole[at + 1 :]) for at in whole[1:])


def _overlapping(
    head: Head, manifests: Sequence[ManifestFile], order: Sequence[int], *, always: bool
) -> list[list[ManifestFile]]:
    """Return groups of manifests that overlap so much that a lookup opens far more bytes than needed."""
    if len(manifests) < 2 or not order:
        return []
    spec = head.metadata.specs()[manifests[0].partition_spec_id]
    try:
        types = [field.field_type for field in partition_struct(head.metadata, spec).fields]
    except UnsupportedError:
        # No schema has the source column of a partition field any more: these manifests cannot be rewritten.
        return []
    batches = []
    for group in overlapping_groups(
        [RangedManifest(manifest, partition_range(manifest, types, order)) for manifest in manifests]
    ):
        batch = [ranged.manifest for ranged in group]
        if len(batch) > 1:
            outputs = outputs_for(head, batch)
            needed = sum(manifest.manifest_length for manifest in batch) / max(1, outputs)
            if always or outputs < len(batch) or lookup_bytes(group) >= _MIN_GAIN * needed:
                batches.append(batch)
    return batches


def _snapshots_since_rewrite(head: Head, request: ManifestRewriteRequest) -> frozenset[int] | None:
    """Return the snapshots after the last rewrite of the same kind; None when the metadata has none.

    Manifests that the last rewrite left or wrote are not rewritten again only because they are smaller than their
    inputs suggested.
    """
    kinds = {_rewrite_kind(head.metadata, request)}
    since: list[int] = []
    for snapshot in ancestors_of(head.snapshot, head.metadata):
        kind = snapshot.summary[MANIFESTS] if snapshot.summary is not None else None
        if kind is not None and (kind in kinds or (not request.sort_by and kind.partition(" sort_by=")[0] in kinds)):
            return frozenset(since)
        since.append(snapshot.snapshot_id)
    return None


def _rewrite_kind(metadata: TableMetadata, request: ManifestRewriteRequest) -> str:
    spec = "all" if request.spec_id is None else request.spec_id
    kind = f"target={_target_bytes(metadata)} spec={spec}"
    return f"{kind} sort_by={','.join(dict.fromkeys(request.sort_by))}" if request.sort_by else kind


def outputs_for(head: Head, manifests: Sequence[ManifestFile]) -> int:
    """Return how many manifests of the target size hold these; 0 when none has live files."""
    live = [manifest for manifest in manifests if has_live_files(manifest)]
    if not live:
        return 0
    return max(1, -(-sum(manifest.manifest_length for manifest in live) // _target_bytes(head.metadata)))


def _target_bytes(metadata: TableMetadata) -> int:
    return MANIFEST_TARGET_BYTES.of(metadata.properties)


def _live_files(head: Head, manifest: ManifestFile, reader: ManifestReader) -> int:
    counts = (manifest.added_files_count, manifest.existing_files_count)
    if counts[0] is None or counts[1] is None:
        # Format version 1 allows manifest lists without counts.
        return len(reader.entries(head, manifest))
    return counts[0] + counts[1]


def _split_entries(entries: list[ManifestEntry], count: int, order: Sequence[int]) -> list[list[ManifestEntry]]:
    """Sort entries by partition and split them into `count` parts of about equal size.

    A cut moves to the nearest end of a partition, so that one manifest holds the whole partition.
    """
    if not count:
        return []
    keyed = sorted(((partition_sort_key(e.data_file.partition, order), e) for e in entries), key=lambda pair: pair[0])
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
                hint="Nothing was changed; check the table's metadata.",
            )
