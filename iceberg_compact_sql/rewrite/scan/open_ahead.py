"""Opens the large inputs of a task ahead of their turn: on a store, each waits for the answers to its own requests."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Sequence
from concurrent.futures import Future

from pyiceberg.io import FileIO

from iceberg_compact_sql.events import ThreadPool
from iceberg_compact_sql.rewrite.scan.open_slice import OpenSlice, TableSchema
from iceberg_compact_sql.rewrite.scan.read_ahead import SMALL_FILE_BYTES
from iceberg_compact_sql.rewrite.task import InputSlice
from iceberg_compact_sql.storage.locations import split_location
from iceberg_compact_sql.storage.request_limit import request_limit

# Files that are open before their turn; only their footers are in memory.
_OPEN_AT_ONCE = 16


def open_ahead(io: FileIO, table: TableSchema, slices: Sequence[InputSlice]) -> Generator[OpenSlice, None, None]:
    """Yield the open slices in their order; the caller closes each. Raises the error of a slice when it is its turn."""
    at_once = min(_OPEN_AT_ONCE, request_limit().requests, sum(map(_is_large_and_remote, slices)))
    if at_once < 2:
        for input_slice in slices:
            yield OpenSlice(io, table, input_slice)
        return
    pool = ThreadPool(at_once, "open")
    under_way: deque[Future[OpenSlice]] = deque()
    waiting = deque(slices)
    try:
        while waiting or under_way:
            while waiting and len(under_way) < at_once:
                under_way.append(pool.submit(OpenSlice, io, table, waiting.popleft()))
            yield under_way.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
        for future in under_way:
            if not future.cancelled() and future.exception() is None:
                future.result().close()


def _is_large_and_remote(input_slice: InputSlice) -> bool:
    return input_slice.size_bytes > SMALL_FILE_BYTES and not split_location(input_slice.path).is_local
