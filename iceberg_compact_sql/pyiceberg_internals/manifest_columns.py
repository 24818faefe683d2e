"""The live entries of a manifest as plain values, with nothing made for each entry that planning does not need."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestEntryStatus, ManifestFile

from iceberg_compact_sql.pyiceberg_internals.avro.read_columns import read_columns

_DELETED = ManifestEntryStatus.DELETED.value
_ADDED = ManifestEntryStatus.ADDED.value

# Object stores take tens of milliseconds to answer; a manifest has 8 MB unless the table says otherwise.
_READ_AT_ONCE = 8

# Field ids of the specification: of the entry, of its file, and of the statistics of the file's columns.
_ENTRY = (0, 1, 3, 4)
_FILE = (100, 101, 102, 103, 104, 131, 132, 140, 134, 135, 143, 144, 145)
_METRICS = (109, 110, 137, 125, 128)

# Positions in the list that `read_live_records` gives for each data or delete file.
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
) = range(len(_ENTRY), len(_ENTRY + _FILE))
VALUE_COUNTS, NULL_COUNTS, NAN_COUNTS, LOWER_BOUNDS, UPPER_BOUNDS = range(
    len(_ENTRY + _FILE), len(_ENTRY + _FILE + _METRICS)
)


def read_ahead(manifests: Sequence[ManifestFile], io: FileIO) -> Iterator[tuple[ManifestFile, Callable[[], bytes]]]:
    """The manifests in order, each with a call that gives its bytes or raises; the next ones are read meanwhile."""
    reads = [(manifest, partial(read_contents, manifest, io)) for manifest in manifests]
    if len(reads) < 2:
        yield from reads
        return
    pool = ThreadPoolExecutor(_READ_AT_ONCE, "manifests")
    try:
        waiting = deque(reads)
        under_way: deque[tuple[ManifestFile, Future[bytes]]] = deque()
        while waiting or under_way:
            while waiting and len(under_way) < _READ_AT_ONCE:
                manifest, read = waiting.popleft()
                under_way.append((manifest, pool.submit(read)))
            ready, contents = under_way.popleft()
            yield ready, contents.result
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def read_contents(manifest: ManifestFile, io: FileIO) -> bytes:
    """The bytes of a manifest; fewer than its list says are an error."""
    with io.new_input(manifest.manifest_path).open() as stream:
        contents = stream.read()
    if len(contents) < manifest.manifest_length:
        raise EOFError(f"it has {len(contents)} bytes of {manifest.manifest_length}")
    return contents


def read_live_records(manifest: ManifestFile, contents: bytes, *, metrics: bool) -> Iterator[list[Any]]:
    """The live entries of a manifest in its order, a list of values each; positions are the constants of this module.

    Sequence numbers and snapshot ids are inherited as the specification says. Without `metrics` the column
    statistics are passed over, and the lists end before them.
    """
    manifest_sequence = manifest.sequence_number
    manifest_snapshot = manifest.added_snapshot_id
    live = 0
    for values in read_columns(contents, _ENTRY + _FILE + (_METRICS if metrics else ())):
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
        yield values
    listed = (manifest.added_files_count or 0) + (manifest.existing_files_count or 0)
    if live < listed:
        raise EOFError(f"it has {live} live entries, its list says {listed}")


def int_map(value: Mapping[int, Any] | None) -> Mapping[int, Any]:
    """A statistics map that is there or not, as a map."""
    return value if value is not None else {}
