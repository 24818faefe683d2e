"""Byte ranges of a file: neighbours merged into one request, large ones read in pieces ahead of their use."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pyarrow as pa

PIECE_BYTES = 4 * 1024**2
MAX_GAP_BYTES = 64 * 1024
_PIECES_AHEAD = 3
_READERS = 2


def merged_spans(
    ranges: Sequence[tuple[int, int]], max_gap_bytes: int = MAX_GAP_BYTES
) -> list[tuple[int, int, list[int]]]:
    """Spans (start, end, members) that cover all ranges; members are indexes into `ranges`.

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
    """The bytes of the spans in order, in pieces of at most 4 MB; threads read the next ones meanwhile."""
    pieces = [
        (start, min(end, start + PIECE_BYTES))
        for span_start, end in spans
        for start in range(span_start, end, PIECE_BYTES)
    ]
    # What is in memory already needs no reading ahead: its pieces would only be held twice.
    if len(pieces) < 2 or not hasattr(file, "read_at") or isinstance(file, pa.BufferReader):
        for start, end in pieces:
            yield _read_piece(file, start, end)
        return
    with ThreadPoolExecutor(_READERS, thread_name_prefix="read-ahead") as reader:
        pending: deque[Future[bytes]] = deque()
        for start, end in pieces:
            pending.append(reader.submit(_read_piece, file, start, end))
            if len(pending) > _PIECES_AHEAD:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()


def read_ranges(file: Any, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
    """The bytes of each range, in as few requests as their places allow; meant for ranges that fit into memory."""
    found: list[bytes] = [b""] * len(ranges)
    for start, end, members in merged_spans(ranges):
        data = _read_piece(file, start, end)
        for member in members:
            found[member] = data[ranges[member][0] - start : ranges[member][1] - start]
    return found


def _read_piece(file: Any, start: int, end: int) -> bytes:
    if hasattr(file, "read_at"):
        data: bytes = file.read_at(end - start, start)
    else:
        file.seek(start)
        data = file.read(end - start)
    if len(data) != end - start:
        raise OSError(f"{len(data)} of {end - start} bytes at {start} could be read: the file is cut short")
    return data
