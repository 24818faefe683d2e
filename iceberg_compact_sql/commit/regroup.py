"""Manifests written anew: entries clustered by partition, in manifests of the target size."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import pairwise
from typing import Any

from pyiceberg.manifest import ManifestContent, ManifestEntry, ManifestFile
from pyiceberg.table import Table

from iceberg_compact_sql.commit.attempts import Attempted, commit_snapshot
from iceberg_compact_sql.commit.drafts import (
    Head,
    ManifestDraft,
    ManifestReader,
    SnapshotDraft,
    existing_entry,
    has_live_files,
    read_head,
)
from iceberg_compact_sql.commit.partitions import PartitionKey, loose_partition_key
from iceberg_compact_sql.errors import CommitConflictError, NotFoundError

_TARGET_PROPERTY = "commit.manifest.target-size-bytes"
_TARGET_BYTES = 8 * 1024**2
Shelf = tuple[ManifestContent, int]


@dataclass(frozen=True, slots=True)
class Regrouping:
    """What a rewrite of manifests replaces and how many it makes of them."""

    replaced: int
    made: int


@dataclass(slots=True)
class _Builder:
    spec_id: int | None
    summary: Mapping[str, str]
    reader: ManifestReader = field(default_factory=ManifestReader)

    def build(self, head: Head, snapshot_id: int) -> SnapshotDraft | None:
        """The draft on this head, or None when nothing is to be gained."""
        shelves = worthwhile_shelves(head, self.spec_id)
        if not shelves:
            return None
        replaced = {manifest.manifest_path for manifests in shelves.values() for manifest in manifests}
        kept = [m for m in head.manifests if m.manifest_path not in replaced and has_live_files(m)]
        drafts: list[ManifestDraft] = []
        entries = 0
        for (content, spec_id), manifests in shelves.items():
            live = [existing_entry(entry) for manifest in manifests for entry in self.reader.entries(head, manifest)]
            _check_counts(manifests, live)
            entries += len(live)
            pieces = _even_pieces(_clustered(spec_id, live), outputs_for(head, manifests))
            drafts += [ManifestDraft(content, spec_id, piece) for piece in pieces]
        counts = {
            "manifests-created": str(len(drafts)),
            "manifests-kept": str(len(kept)),
            "manifests-replaced": str(len(replaced)),
            "entries-processed": str(entries),
        }
        return SnapshotDraft(
            [*drafts, *kept], properties={**self.summary, **counts}, tag=Regrouping(len(replaced), len(drafts))
        )


def regroup_manifests(
    table: Table, *, branch: str, spec_id: int | None, summary: Mapping[str, str]
) -> tuple[Attempted, Regrouping]:
    """Commit the manifests of a branch's head in better order; every entry keeps every field.

    A no-op, without a commit, when no shelf (spec and content) would get fewer manifests.
    """
    builder = _Builder(spec_id, summary)
    attempted = commit_snapshot(table, branch=branch, table_uuid=str(table.metadata.table_uuid), build=builder.build)
    if attempted.interrupted is not None:
        raise attempted.interrupted
    done = attempted.draft.tag if attempted.draft is not None else Regrouping(0, 0)
    return attempted, done


def plan_regrouping(table: Table, branch: str, spec_id: int | None) -> Regrouping:
    """What `regroup_manifests` would do on the head as it is; reads the manifest list only."""
    head = read_head(table, branch)
    if head is None:
        return Regrouping(0, 0)
    shelves = worthwhile_shelves(head, spec_id).values()
    return Regrouping(sum(map(len, shelves)), sum(outputs_for(head, manifests) for manifests in shelves))


def worthwhile_shelves(head: Head, spec_id: int | None) -> dict[Shelf, list[ManifestFile]]:
    """Manifests by content and spec, where fewer of them would hold the same entries."""
    if spec_id is not None and spec_id not in {spec.spec_id for spec in head.metadata.partition_specs}:
        known = ", ".join(str(spec.spec_id) for spec in head.metadata.partition_specs)
        raise NotFoundError(
            f"the table has no partition spec {spec_id}", argument="spec_id", value=spec_id, hint=f"It has: {known}."
        )
    shelves: dict[Shelf, list[ManifestFile]] = defaultdict(list)
    for manifest in head.manifests:
        if spec_id in (None, manifest.partition_spec_id):
            shelves[manifest.content, manifest.partition_spec_id].append(manifest)
    return {shelf: found for shelf, found in shelves.items() if len(found) > outputs_for(head, found)}


def outputs_for(head: Head, manifests: Sequence[ManifestFile]) -> int:
    """How many manifests of the target size hold these; none where nothing in them is live."""
    live = [manifest for manifest in manifests if has_live_files(manifest)]
    if not live:
        return 0
    text = head.metadata.properties.get(_TARGET_PROPERTY, "")
    target = int(text) if text.isdigit() and int(text) else _TARGET_BYTES
    return max(1, -(-sum(manifest.manifest_length for manifest in live) // target))


def _clustered(spec_id: int, entries: list[ManifestEntry]) -> list[ManifestEntry]:
    """Entries of one partition side by side, partitions in the order of their values; null first."""
    return sorted(entries, key=lambda entry: _order(loose_partition_key(spec_id, entry.data_file.partition)))


def _order(key: PartitionKey) -> tuple[Any, ...]:
    return tuple((value is not None, type(value).__name__, _sortable(value)) for value in key[1:])


def _sortable(value: Any) -> Any:
    return value if isinstance(value, (int, float, str, bytes, Decimal)) else str(value)


def _even_pieces(entries: list[ManifestEntry], count: int) -> list[list[ManifestEntry]]:
    bounds = [len(entries) * i // count for i in range(count + 1)] if count else []
    pieces = [entries[start:end] for start, end in pairwise(bounds)]
    return [piece for piece in pieces if piece]


def _check_counts(manifests: Sequence[ManifestFile], live: Sequence[ManifestEntry]) -> None:
    counts = [(m.added_files_count, m.existing_files_count) for m in manifests]
    if all(added is not None and existing is not None for added, existing in counts):
        listed = sum((added or 0) + (existing or 0) for added, existing in counts)
        if listed != len(live):
            raise CommitConflictError(
                f"the manifest list counts {listed} live files, but its manifests hold {len(live)}",
                hint="Nothing was changed; the table's metadata needs a look.",
            )
