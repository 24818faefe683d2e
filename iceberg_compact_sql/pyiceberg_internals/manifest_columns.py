"""Reads the live entries of a manifest as plain values, and only the fields that planning needs."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any

from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestEntryStatus, ManifestFile

from iceberg_compact_sql.events import ThreadPool
from iceberg_compact_sql.pyiceberg_internals.avro.read_columns import read_columns
from iceberg_compact_sql.pyiceberg_internals.manifest_lists import first_row_id
from iceberg_compact_sql.storage.request_limit import request_limit

_DELETED = ManifestEntryStatus.DELETED.value
_ADDED = ManifestEntryStatus.ADDED.value

# Manifests that were read and not used yet; one has 8 MB by default.
_AHEAD_BYTES = 64 * 1024**2

# Field ids of the specification: of the manifest entry, of its file, and of the file's column statistics.
_ENTRY = (0, 1, 3, 4)
_FILE = (100, 101, 102, 103, 104, 131, 132, 140, 134, 135, 143, 144, 145, 142)
# NaN counts are first: they may be read alone.
_METRICS = (137, 109, 110, 125, 128)

# Positions in the list that `read_live_records` yields for each data or delete file.
_STATUS, SNAPSHOT_ID, SEQUENCE, FILE_SEQUENCE = range(len(_ENTRY))
(
    PATH,
    FORMAT,
    PARTITION,
    ROWS,
    SIZE,
    KEY_METADATA,
    SPLIT_OFFSETS,
    SORT_ORDER,
    CONTENT,
    EQUALITY_IDS,
    REFERENCED_PATH,
    CONTENT_OFFSET,
    CONTENT_SIZE,
    FIRST_ROW_ID,
) = range(len(_ENTRY), len(_ENTRY + _FILE))
NAN_COUNTS, VALUE_COUNTS, NULL_COUNTS, LOWER_BOUNDS, UPPER_BOUNDS = range(
    len(_ENTRY + _FILE), len(_ENTRY + _FILE + _METRICS)
)


def read_ahead(manifests: Sequence[ManifestFile], io: FileIO) -> Iterator[tuple[ManifestFile, Callable[[], bytes]]]:
    """Yield the manifests in order, each with a function that returns its bytes or raises; reads ahead."""
    reads = [(manifest, partial(read_contents, manifest, io)) for manifest in manifests]
    if len(reads) < 2:
        yield from reads
        return
    at_once = min(request_limit().requests, len(reads))
    pool = ThreadPool(at_once, "manifests")
    try:
        waiting = deque(reads)
        under_way: deque[tuple[ManifestFile, Future[bytes]]] = deque()
        size_bytes = 0
        while waiting or under_way:
            while waiting and len(under_way) < at_once:
                manifest, read = waiting[0]
                if under_way and size_bytes + manifest.manifest_length > _AHEAD_BYTES:
                    break
                waiting.popleft()
                size_bytes += manifest.manifest_length
                under_way.append((manifest, pool.submit(read)))
            ready, contents = under_way.popleft()
            size_bytes -= ready.manifest_length
            yield ready, contents.result
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def read_contents(manifest: ManifestFile, io: FileIO) -> bytes:
    """Return the bytes of a manifest; raise if there are fewer than the manifest list says."""
    with io.new_input(manifest.manifest_path).open() as stream:
        contents = stream.read()
    if len(contents) < manifest.manifest_length:
        raise EOFError(f"it has {len(contents)} bytes of {manifest.manifest_length}")
    return contents


def read_live_records(
    manifest: ManifestFile, contents: bytes, *, metrics: bool, nan_counts: bool = False
) -> Iterator[list[Any]]:
    """Yield a list of values for each live entry of a manifest, in order; positions are the constants of this module.

    Sequence numbers, snapshot ids and row ids are inherited as the specification says. Without `metrics` the column
    statistics are skipped, and the lists end before them; with `nan_counts` they end after the NaN counts.
    """
    manifest_sequence = manifest.sequence_number
    manifest_snapshot = manifest.added_snapshot_id
    following = first_row_id(manifest)
    live = 0
    statistics = _METRICS if metrics else _METRICS[:1] if nan_counts else ()
    for values in read_columns(contents, _ENTRY + _FILE + statistics):
        status = values[_STATUS]
        if status == _DELETED:
            continue
        if values[SNAPSHOT_ID] is None:
            values[SNAPSHOT_ID] = manifest_snapshot
        if manifest_sequence == 0 or status == _ADDED:
            if values[SEQUENCE] is None:
                values[SEQUENCE] = manifest_sequence
            if values[FILE_SEQUENCE] is None:
                values[FILE_SEQUENCE] = manifest_sequence
        live += 1
        if following is None:
            values[FIRST_ROW_ID] = None
        elif values[FIRST_ROW_ID] is None:
            values[FIRST_ROW_ID] = following
            following += values[ROWS]
        yield values
    listed = (manifest.added_files_count or 0) + (manifest.existing_files_count or 0)
    if live < listed:
        raise EOFError(f"it has {live} live entries, but the manifest list says {listed}")


def int_map(value: Mapping[int, Any] | None) -> Mapping[int, Any]:
    """Return a statistics map, empty if there is none."""
    return value if value is not None else {}
