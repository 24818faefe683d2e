"""Long IN lists of plain constants, read without the SQL parser.

sqlglot makes two tokens and one node for each value: 200,000 values take seconds. A list that holds only whole numbers,
only decimals, only dates (`DATE '2024-01-31'`), only timestamps or only text without escapes means the same to every
SQL parser. Such a list is read here, and the parser gets a short marker instead.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

import numpy as np

from iceberg_compact_sql.units import zone

# Shorter lists are left to the parser.
_LEAST_CHARACTERS = 4_000
_NUMBER = r"-?\d+"
_DECIMAL = r"-?\d+\.\d+"
_DATE = r"DATE\s*'\d{4}-\d\d-\d\d'"
_CLOCK = r"'(?!0000)\d{4}-\d\d-\d\d\ \d\d:\d\d:\d\d(?:\.\d{1,6})?'"
_TIMESTAMP = rf"TIMESTAMP\s*{_CLOCK}"
_TIMESTAMP_NTZ = rf"TIMESTAMP_NTZ\s*{_CLOCK}"
_TEXT = r"'[^'\\]*'"
# Strings, quoted names and comments are matched first: an IN list inside them is not an IN list.
_PART = re.compile(
    r"""'(?:[^'\\]|\\.|'')*' | "(?:[^"\\]|\\.|"")*" | `[^`]*` | --[^\n]* | /\*.*?\*/"""
    rf"""| \bIN\s*\((?: \s*(?P<numbers>{_NUMBER}(?:\s*,\s*{_NUMBER})*)\s*"""
    rf"""| \s*(?P<decimals>{_DECIMAL}(?:\s*,\s*{_DECIMAL})*)\s*"""
    rf"""| \s*(?P<dates>{_DATE}(?:\s*,\s*{_DATE})*)\s*"""
    rf"""| \s*(?P<timestamps>{_TIMESTAMP}(?:\s*,\s*{_TIMESTAMP})*)\s*"""
    rf"""| \s*(?P<local_timestamps>{_TIMESTAMP_NTZ}(?:\s*,\s*{_TIMESTAMP_NTZ})*)\s*"""
    rf"""| \s*(?P<texts>{_TEXT}(?:\s*,\s*{_TEXT})*)\s* )\)""",
    re.IGNORECASE | re.DOTALL | re.VERBOSE,
)
_TEXT_ITEM = re.compile(_TEXT)
_PREFIX = "iceberg_compact_list_"


@dataclass(frozen=True, slots=True)
class _Cut:
    """Where a marker ends in the shortened text, and how many characters it saved."""

    end: int
    saved: int


class ShortenedFilter:
    """The text of a filter with a marker for each long list.

    >>> short = ShortenedFilter("id IN (" + ", ".join(str(n) for n in range(2000)) + ") AND b = 1")
    >>> short.text
    'id IN (:iceberg_compact_list_0) AND b = 1'
    >>> len(short.values("iceberg_compact_list_0"))
    2000
    """

    def __init__(self, text: str, time_zone: str = "UTC") -> None:
        self._time_zone = time_zone
        self._lists: list[Sequence[object]] = []
        self._cuts: list[_Cut] = []
        self.text = self._shorten(text) if len(text) >= _LEAST_CHARACTERS else text

    def values(self, marker: str) -> Sequence[object] | None:
        """Return the values behind a marker; None for a name that is not one of ours."""
        number = marker.removeprefix(_PREFIX)
        if number == marker or not number.isdigit() or int(number) >= len(self._lists):
            return None
        return self._lists[int(number)]

    def original_offset(self, offset: int) -> int:
        """Return where a character of the shortened text stands in the text that the user wrote."""
        return offset + sum(cut.saved for cut in self._cuts if cut.end <= offset)

    def _shorten(self, text: str) -> str:
        parts: list[str] = []
        done = length = 0
        for match in _PART.finditer(text):
            kind = match.lastgroup
            if kind is None or match.end(kind) - match.start(kind) < _LEAST_CHARACTERS:
                continue
            items = match[kind]
            values = _values(kind, items, self._time_zone)
            if values is None:
                continue
            marker = f":{_PREFIX}{len(self._lists)}"
            self._lists.append(values)
            parts += [text[done : match.start(kind)], marker]
            length += match.start(kind) - done + len(marker)
            self._cuts.append(_Cut(length, len(items) - len(marker)))
            done = match.end(kind)
        return "".join([*parts, text[done:]])


def _values(kind: str, items: str, time_zone: str) -> Sequence[object] | None:
    """Return the values of a list; None if a date or a time does not exist, which the parser then reports."""
    if kind == "numbers":
        return [int(item) for item in items.split(",")]
    if kind == "decimals":
        return [Decimal(item.strip()) for item in items.split(",")]
    texts = [item[1:-1] for item in _TEXT_ITEM.findall(items)]
    if kind == "texts":
        return texts
    try:
        if kind == "dates":
            return [dt.date.fromisoformat(text) for text in texts]
        moments: list[dt.datetime] = np.array(texts, "datetime64[us]").tolist()
    except ValueError:
        return None
    if kind == "local_timestamps":
        return moments
    session_zone = zone(time_zone)
    return [moment.replace(tzinfo=session_zone) for moment in moments]
