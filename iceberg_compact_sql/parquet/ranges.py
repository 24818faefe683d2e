"""Reads byte ranges of a file: adjacent ranges in one request, large ones in blocks that are read ahead."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pyarrow as pa

BLOCK_BYTES = 4 * 1024**2
MAX_GAP_BYTES = 64 * 1024
_BLOCKS_AHEAD = 6
_READERS = 6


def merged_spans(
    ranges: Sequence[tuple[int, int]], max_gap_bytes: int = MAX_GAP_BYTES
) -> list[tuple[int, int, list[int]]]:
    """Return spans (start, end, members) that cover all ranges; members are indexes into `ranges`.

    >>> merged_spans([(10, 20), (500_000, 500_001), (22, 30)])
    [(10, 30, [0, 2]), (500000, 500001, [1])]
    """
    spans: list[tuple[int, int, list[int]]] = []
    for member in sorted(range(len(ranges)), key=lambda index: ranges[index]):
        start, end = ranges[member]
        if spans and start - spans[-1][1] <= max_gap_bytes:
            first, last, members = spans[-1]
            members.append(member)
            spans[-1] = (first, max(last, end), members)
        else:
            spans.append((start, end, [member]))
    return spans


def read_ahead(file: Any, spans: Sequence[tuple[int, int]]) -> Iterator[bytes]:
    """Yield the bytes of the spans in order, in blocks of at most 4 MB; threads read the next blocks meanwhile."""
    blocks = [
        (start, min(end, start + BLOCK_BYTES))
        for span_start, end in spans
        for start in range(span_start, end, BLOCK_BYTES)
    ]
    # A file in memory needs no reading ahead: its blocks would only be held twice.
    if len(blocks) < 2 or not hasattr(file, "read_at") or isinstance(file, pa.BufferReader):
        for start, end in blocks:
            yield _read_block(file, start, end)
        return
    with ThreadPoolExecutor(_READERS, thread_name_prefix="read-ahead") as reader:
        pending: deque[Future[bytes]] = deque()
        for start, end in blocks:
            pending.append(reader.submit(_read_block, file, start, end))
            if len(pending) > _BLOCKS_AHEAD:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()


def read_ranges(file: Any, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
    """Return the bytes of each range, in as few requests as possible; all ranges must fit into memory."""
    contents: list[bytes] = [b""] * len(ranges)
    for start, end, members in merged_spans(ranges):
        data = _read_block(file, start, end)
        for member in members:
            contents[member] = data[ranges[member][0] - start : ranges[member][1] - start]
    return contents


def _read_block(file: Any, start: int, end: int) -> bytes:
    if hasattr(file, "read_at"):
        data: bytes = file.read_at(end - start, start)
    else:
        file.seek(start)
        data = file.read(end - start)
    if len(data) != end - start:
        raise OSError(f"{len(data)} of {end - start} bytes at {start} could be read: the file is truncated")
    return data
