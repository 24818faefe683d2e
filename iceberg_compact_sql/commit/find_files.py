"""Find files in the manifests of a head, and read no more manifests than needed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyiceberg.manifest import ManifestContent, ManifestFile
from pyiceberg.types import DateType, DecimalType, IntegerType, LongType, PrimitiveType, StringType

from iceberg_compact_sql.commit.snapshot_draft import FileFacts, Head, ManifestReader, has_live_files
from iceberg_compact_sql.format_versions import rules_of
from iceberg_compact_sql.pyiceberg_internals.manifest_writer import partition_struct, partition_value
from iceberg_compact_sql.table.decode_bound import decode_bound
from iceberg_compact_sql.table.model import LiveFile

# Types whose Python order is the order of the bounds; others are not used to skip a manifest.
_ORDERED = (IntegerType, LongType, StringType, DateType, DecimalType)
_MAX_PRUNED_PARTITIONS = 200


@dataclass(frozen=True, slots=True)
class ManifestFilter:
    """The entries of one spec that a search wants: a range of data sequence numbers, and partitions."""

    spec_id: int
    partitions: frozenset[tuple[Any, ...]]
    lowest_sequence_number: int
    highest_sequence_number: int


@dataclass(frozen=True, slots=True)
class LocatedEntry:
    """A live manifest entry of a wanted path."""

    sequence_number: int
    facts: FileFacts


@dataclass(slots=True)
class LocatedFiles:
    """The wanted data files that are live: their paths by manifest, and the entries of each path."""

    by_manifest: dict[str, set[str]] = field(default_factory=dict)
    files: dict[str, list[LocatedEntry]] = field(default_factory=dict)


def locate_data_files(head: Head, files: Sequence[LiveFile], reader: ManifestReader) -> LocatedFiles:
    """Find the manifests and entries of data files. A path that is not live in the head is not in the result.

    Manifests are first skipped by spec, sequence numbers and partition bounds. If a file is still missing, the others
    are read too: a file counts as removed only after every manifest was read.
    """
    located = LocatedFiles()
    paths = {file.path for file in files}
    manifests = [m for m in head.of_content(ManifestContent.DATA) if has_live_files(m)]
    filters = [_manifest_filter(spec_id, files) for spec_id in {file.spec_id for file in files}]
    likely = [m for m in manifests if any(manifest_may_hold(head, m, wanted) for wanted in filters)]
    likely_paths = {m.manifest_path for m in likely}
    _search(located, head, likely, paths, reader)
    if len(located.files) < len(paths):
        _search(located, head, [m for m in manifests if m.manifest_path not in likely_paths], paths, reader)
    return located


def _search(
    located: LocatedFiles, head: Head, manifests: Sequence[ManifestFile], paths: set[str], reader: ManifestReader
) -> None:
    for manifest, entries in reader.all_entries(head, manifests):
        for entry in entries:
            path = entry.data_file.file_path
            if path in paths:
                located.by_manifest.setdefault(manifest.manifest_path, set()).add(path)
                located_entry = LocatedEntry(entry.sequence_number or 0, FileFacts.of(entry.data_file))
                located.files.setdefault(path, []).append(located_entry)


def manifest_may_hold(head: Head, manifest: ManifestFile, wanted: ManifestFilter) -> bool:
    """Whether a manifest may hold a wanted entry; False only when its list entry rules it out."""
    if manifest.partition_spec_id != wanted.spec_id:
        return False
    if rules_of(head.metadata.format_version).sequence_numbers and (
        manifest.min_sequence_number > wanted.highest_sequence_number
        or manifest.sequence_number < wanted.lowest_sequence_number
    ):
        return False
    return _partitions_overlap(head, manifest, wanted)


def _partitions_overlap(head: Head, manifest: ManifestFile, wanted: ManifestFilter) -> bool:
    summaries = manifest.partitions
    if not summaries or len(wanted.partitions) > _MAX_PRUNED_PARTITIONS:
        return True
    types = [f.field_type for f in partition_struct(head.metadata, head.metadata.specs()[wanted.spec_id]).fields]
    if len(types) != len(summaries):
        return True
    bounds: list[tuple[Any, Any] | None] = []
    for field_type, summary in zip(types, summaries, strict=True):
        bounds.append(_decode_bounds(field_type, summary.lower_bound, summary.upper_bound))
    return any(
        all(
            _within_bounds(field_type, value, bound, summary.contains_null)
            for field_type, value, bound, summary in zip(types, values, bounds, summaries, strict=True)
        )
        for values in wanted.partitions
        if len(values) == len(types)
    )


def _decode_bounds(field_type: Any, raw_lower: bytes | None, raw_upper: bytes | None) -> tuple[Any, Any] | None:
    if not isinstance(field_type, _ORDERED):
        return None
    lower, upper = decode_bound(field_type, raw_lower), decode_bound(field_type, raw_upper)
    return None if lower is None or upper is None else (lower, upper)


def _within_bounds(field_type: Any, value: Any, bound: tuple[Any, Any] | None, contains_null: bool) -> bool:
    if value is None:
        return contains_null
    if bound is None:
        return True
    comparable = partition_value(field_type, value) if isinstance(field_type, PrimitiveType) else value
    try:
        return bool(bound[0] <= comparable <= bound[1])
    except TypeError:
        return True


def _manifest_filter(spec_id: int, files: Iterable[LiveFile]) -> ManifestFilter:
    spec_files = [file for file in files if file.spec_id == spec_id]
    numbers = [file.sequence_number for file in spec_files]
    return ManifestFilter(spec_id, frozenset(tuple(file.partition) for file in spec_files), min(numbers), max(numbers))
