"""Finding files in the manifests of a head, reading no more manifests than are needed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyiceberg.conversions import from_bytes
from pyiceberg.manifest import ManifestContent, ManifestFile
from pyiceberg.types import DateType, DecimalType, IntegerType, LongType, PrimitiveType, StringType

from iceberg_compact_sql.commit.snapshot_draft import FileFacts, Head, ManifestReader, has_live_files
from iceberg_compact_sql.pyiceberg_internals.manifest_writer import partition_struct, partition_value
from iceberg_compact_sql.table.model import LiveFile

# Types whose Python order is the order of the bounds; others are not used to skip a manifest.
_ORDERED = (IntegerType, LongType, StringType, DateType, DecimalType)
_MAX_PRUNED_PARTITIONS = 200


@dataclass(frozen=True, slots=True)
class Wanted:
    """What of one spec is looked for: a range of data sequence numbers and the partitions."""

    spec_id: int
    partitions: frozenset[tuple[Any, ...]]
    lowest_sequence_number: int
    highest_sequence_number: int


@dataclass(frozen=True, slots=True)
class FoundFile:
    """One live entry of a wanted path."""

    sequence_number: int
    facts: FileFacts


@dataclass(slots=True)
class Located:
    """Where the wanted data files are: paths by manifest, and what the entries of each path say."""

    by_manifest: dict[str, set[str]] = field(default_factory=dict)
    files: dict[str, list[FoundFile]] = field(default_factory=dict)


def locate_data_files(head: Head, files: Sequence[LiveFile], reader: ManifestReader) -> Located:
    """The manifests that hold data files; a path that is not live in the head is in neither.

    Manifests are skipped by spec, sequence numbers and partition bounds first; only if a file is still missing
    then are the rest read, so that a file counts as gone only after every manifest was seen.
    """
    located = Located()
    paths = {file.path for file in files}
    manifests = [m for m in head.of_content(ManifestContent.DATA) if has_live_files(m)]
    wanted = [_wanted(spec_id, files) for spec_id in {file.spec_id for file in files}]
    likely = [m for m in manifests if any(may_hold(head, m, one) for one in wanted)]
    likely_paths = {m.manifest_path for m in likely}
    for manifest in [*likely, *(m for m in manifests if m.manifest_path not in likely_paths)]:
        if len(located.files) == len(paths) and manifest.manifest_path not in likely_paths:
            break
        for entry in reader.entries(head, manifest):
            path = entry.data_file.file_path
            if path in paths:
                located.by_manifest.setdefault(manifest.manifest_path, set()).add(path)
                found = FoundFile(entry.sequence_number or 0, FileFacts.of(entry.data_file))
                located.files.setdefault(path, []).append(found)
    return located


def may_hold(head: Head, manifest: ManifestFile, wanted: Wanted) -> bool:
    """False only when no entry of the manifest can be of the wanted spec, numbers and partitions."""
    if manifest.partition_spec_id != wanted.spec_id:
        return False
    if head.metadata.format_version > 1 and (
        manifest.min_sequence_number > wanted.highest_sequence_number
        or manifest.sequence_number < wanted.lowest_sequence_number
    ):
        return False
    return _partitions_overlap(head, manifest, wanted)


def _partitions_overlap(head: Head, manifest: ManifestFile, wanted: Wanted) -> bool:
    summaries = manifest.partitions
    if not summaries or len(wanted.partitions) > _MAX_PRUNED_PARTITIONS:
        return True
    types = [f.field_type for f in partition_struct(head.metadata, head.metadata.specs()[wanted.spec_id]).fields]
    if len(types) != len(summaries):
        return True
    bounds: list[tuple[Any, Any] | None] = []
    for kind, summary in zip(types, summaries, strict=True):
        bounds.append(_bound(kind, summary.lower_bound, summary.upper_bound))
    return any(
        all(
            _inside(kind, value, bound, summary.contains_null)
            for kind, value, bound, summary in zip(types, values, bounds, summaries, strict=True)
        )
        for values in wanted.partitions
        if len(values) == len(types)
    )


def _bound(kind: Any, lower: bytes | None, upper: bytes | None) -> tuple[Any, Any] | None:
    if not isinstance(kind, _ORDERED) or lower is None or upper is None:
        return None
    try:
        return from_bytes(kind, lower), from_bytes(kind, upper)
    except Exception:
        # A bound of the type before a promotion (int for long) cannot be read: it is no reason to skip the manifest.
        return None


def _inside(kind: Any, value: Any, bound: tuple[Any, Any] | None, contains_null: bool) -> bool:
    if value is None:
        return contains_null
    if bound is None:
        return True
    plain = partition_value(kind, value) if isinstance(kind, PrimitiveType) else value
    try:
        return bool(bound[0] <= plain <= bound[1])
    except TypeError:
        return True


def _wanted(spec_id: int, files: Iterable[LiveFile]) -> Wanted:
    mine = [file for file in files if file.spec_id == spec_id]
    numbers = [file.sequence_number for file in mine]
    return Wanted(spec_id, frozenset(tuple(file.partition) for file in mine), min(numbers), max(numbers))
