"""Shared code for the listings of remote stores."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from iceberg_compact_sql.events import ThreadPool
from iceberg_compact_sql.storage.request_limit import request_limit

T = TypeVar("T")


def listed_in_threads(list_folder: Callable[[str], T], folders: Sequence[str]) -> Iterator[T]:
    """Yield the listing of each folder, in order; several folders are listed at the same time."""
    if not folders:
        return
    with ThreadPool(min(request_limit().requests, len(folders)), "list") as pool:
        yield from pool.map(list_folder, folders)


def every_level(relative: str, enter: Callable[[str], bool]) -> bool:
    """Whether every folder of a path may be entered; for flat listings, which do not stop at folders."""
    at = relative.find("/")
    while at >= 0:
        if not enter(relative[:at]):
            return False
        at = relative.find("/", at + 1)
    return enter(relative)


def modified_ms(moment: dt.datetime | None) -> int | None:
    """Return a modification time in epoch milliseconds; a time without a zone is UTC."""
    if moment is None:
        return None
    aware = moment if moment.tzinfo else moment.replace(tzinfo=dt.timezone.utc)
    return int(aware.timestamp() * 1000)
