"""Parses the filters that Iceberg's scan node describes; names and strings stand in it without quoting."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

Kind = Literal["equality", "range", "in", "prefix", "null", "not null", "other"]
Value = str | int | float | bool | bytes


@dataclass(frozen=True, slots=True)
class Predicate:
    """One comparison of a column. `values` are literals of a query and are shown to nobody."""

    column: str
    kind: Kind
    operator: str = ""
    values: tuple[Value, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class All:
    """Every part holds; without parts it is true."""

    parts: tuple[Filter, ...] = ()


@dataclass(frozen=True, slots=True)
class Any_:
    """One part holds; without parts it is false."""

    parts: tuple[Filter, ...] = ()


Filter = Predicate | All | Any_


def predicates(filter_: Filter) -> Iterator[Predicate]:
    """Yield every comparison inside a filter."""
    if isinstance(filter_, Predicate):
        yield filter_
    else:
        for part in filter_.parts:
            yield from predicates(part)


def shape(filter_: Filter) -> tuple[tuple[str, str], ...]:
    """Return the columns and kinds of a filter: all that may be kept and shown.

    `IS NOT NULL` beside another filter of the column is Spark's addition, not the user's.
    """
    kinds: dict[str, set[str]] = {}
    for predicate in predicates(filter_):
        kinds.setdefault(predicate.column, set()).add(predicate.kind)
    return tuple(sorted((column, kind) for column, found in kinds.items() for kind in (found - {"not null"} or found)))


class FilterParser:
    """Parses filters over these columns, the names of all schemas of the table."""

    def __init__(self, columns: Iterable[str]) -> None:
        names = "|".join(re.escape(name) for name in sorted(set(columns), key=len, reverse=True))
        self._term = re.compile(rf"(?:(?P<transform>\w+)(?:\[\d+\])?\((?P<inner>{names})\)|(?P<name>{names}))")
        begin = (
            rf"(?:\w+(?:\[\d+\])?\((?:{names})\)|(?:{names})) (?:IS |IN |NOT |LIKE |[<>=!]=? )"
            r"|is_nan\(|not_nan\(|NOT \(|\(|true|false"
        )
        # A string ends at a quote before the next predicate: quotes inside it are not escaped.
        self._end = re.compile(rf"'(?=$|, (?:{begin})|\)| AND (?:{begin})| OR (?:{begin}))")
        self._item = re.compile(r"'(?=, '|\)(?:$|, | AND | OR |\)))")
        self._text = ""
        self._at = 0

    def parse(self, text: str) -> All:
        """Return the filter; ValueError, without any of its text, for what is not understood."""
        self._text, self._at = text, 0
        parts: list[Filter] = []
        while self._at < len(text):
            parts.append(self._filter(0))
            if not self._take(", ") and self._at < len(text):
                raise ValueError("a filter is not understood")
        return All(tuple(parts))

    def _take(self, token: str) -> bool:
        if self._text.startswith(token, self._at):
            self._at += len(token)
            return True
        return False

    def _filter(self, depth: int) -> Filter:
        if depth > 200:
            raise ValueError("a filter is nested too deeply")
        for word in ("is_nan(", "not_nan("):
            if self._take(word):
                column = self._column()[0]
                self._take(")")
                return Predicate(column, "other", word[:-1])
        if self._take("NOT ("):
            inner = self._filter(depth + 1)
            self._take(")")
            # A negated filter says which column is used; bounds help little.
            found = next(predicates(inner), None)
            return All() if found is None else Predicate(found.column, "other", "not")
        if self._take("("):
            return self._pair(depth)
        if self._take("true"):
            return All()
        if self._take("false"):
            return Any_()
        column, plain = self._column()
        predicate = self._comparison(column)
        return predicate if plain else Predicate(column, "other", "transform")

    def _pair(self, depth: int) -> Filter:
        left = self._filter(depth + 1)
        both = self._take(" AND ")
        if not both and not self._take(" OR "):
            raise ValueError("a filter is not understood")
        right = self._filter(depth + 1)
        self._take(")")
        return All((left, right)) if both else Any_((left, right))

    def _column(self) -> tuple[str, bool]:
        match = self._term.match(self._text, self._at)
        if match is None:
            raise ValueError("a filter names no column of the table")
        self._at = match.end()
        return match["name"] or match["inner"], match["name"] is not None

    def _comparison(self, column: str) -> Predicate:
        if self._take(" IS NULL"):
            return Predicate(column, "null")
        if self._take(" IS NOT NULL"):
            return Predicate(column, "not null")
        if self._take(" IN ("):
            return Predicate(column, "in", "in", self._list())
        if self._take(" NOT IN ("):
            return Predicate(column, "other", "not in", self._list())
        if self._take(" LIKE '"):
            return Predicate(column, "prefix", "like", (self._string(self._end).removesuffix("%"),))
        if self._take(" NOT LIKE '"):
            return Predicate(column, "other", "not like", (self._string(self._end),))
        for operator in ("<=", ">=", "!=", "<", ">", "="):
            if self._take(f" {operator} "):
                value = self._literal(self._end)
                kind: Kind = "equality" if operator == "=" else "other" if operator == "!=" else "range"
                return Predicate(column, kind, operator, (value,))
        raise ValueError("a filter has an unknown operator")

    def _string(self, end: re.Pattern[str]) -> str:
        match = end.search(self._text, self._at)
        if match is None:
            raise ValueError("a string of a filter does not end")
        value = self._text[self._at : match.start()]
        self._at = match.end()
        return value

    def _literal(self, end: re.Pattern[str]) -> Value:
        if self._take("X'"):
            return bytes.fromhex(self._string(re.compile("'")))
        if self._take("'"):
            return self._string(end)
        match = re.compile(r"[^,)\s]+").match(self._text, self._at)
        if match is None:
            raise ValueError("a filter has no value")
        self._at = match.end()
        word = match[0]
        if word in ("true", "false"):
            return word == "true"
        return float(word) if re.search(r"[.eEN]|Inf", word) else int(word)

    def _list(self) -> tuple[Value, ...]:
        values: list[Value] = []
        while True:
            values.append(self._literal(self._item))
            if self._take(")"):
                return tuple(values)
            if not self._take(", "):
                raise ValueError("a list of a filter does not end")


def comparable(value: Any, sample_value: Any) -> bool:
    """Whether a literal can be compared with values of a column."""
    numbers = (int, float)
    if isinstance(sample_value, numbers) and not isinstance(sample_value, bool):
        return isinstance(value, numbers) and not isinstance(value, bool)
    return type(value) is type(sample_value)
