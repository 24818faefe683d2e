"""Finds the tables and views of the session's catalogs whose names match a pattern."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from iceberg_compact_sql.catalogs.entries import list_entries
from iceberg_compact_sql.catalogs.names import (
    ResolvedName,
    default_catalog,
    parse_table_name,
    quote_name,
    required_catalog,
    resolve_name,
    show_name,
)
from iceberg_compact_sql.catalogs.open_table import known_catalogs, open_catalog
from iceberg_compact_sql.catalogs.session_view import SessionView
from iceberg_compact_sql.errors import InvalidArgumentError, NotFoundError

_WILDCARDS = frozenset("*?[")
# Joins the parts of a name for a comparison. A dot would not do: it may be inside a part.
_SEPARATOR = "\0"
_PATTERN_RULE = "Write '*', 'db.*', 'catalog.*' or 'catalog.db.events_*'; * and ? stand for any characters."


@dataclass(frozen=True, slots=True)
class MatchingTable:
    """A name in a catalog that matches a pattern."""

    catalog: str
    identifier: tuple[str, ...]
    is_view: bool = False

    @property
    def shown(self) -> str:
        """The full name, with backticks only where a part needs them; it can be used in a CALL."""
        return show_name((self.catalog, *self.identifier))

    @property
    def quoted(self) -> str:
        return quote_name((self.catalog, *self.identifier))


def matching_tables(view: SessionView, pattern: str, *, catalog: str | None = None) -> list[MatchingTable]:
    """Return every table and view that matches, in the order of their names; raise when there is none.

    A pattern is completed as a table name is; `*` alone means all tables of the default catalog. `*` also matches
    dots: `db.*` includes namespaces below `db`. `catalog` is that of a `catalog.system.procedure(...)` call.

    The first part of a pattern of three parts may be a pattern of catalogs. A first part that names both a namespace
    and a catalog that Spark does not have is the namespace, if tables match there.
    """
    parts = _parse(pattern)
    for targets in _readings(view, parts, catalog):
        matches = [match for target in targets for match in _matches(view, target)]
        if matches:
            return sorted(matches, key=lambda match: (match.catalog, match.identifier))
    searched = ", ".join(
        sorted({repr(target.catalog) for targets in _readings(view, parts, catalog) for target in targets})
    )
    raise NotFoundError(
        f"no table matches the pattern {pattern!r} in catalog {searched}",
        argument="pattern",
        value=pattern,
        hint=_PATTERN_RULE,
    )


def matches_pattern(view: SessionView, table: MatchingTable, pattern: str, *, catalog: str | None = None) -> bool:
    """Whether a table matches a pattern in any of its readings, by its name alone; nothing is listed."""
    return any(
        target.catalog == table.catalog and _fits(table.identifier, target.identifier)
        for targets in _readings(view, _parse(pattern), catalog)
        for target in targets
    )


def _parse(pattern: str) -> tuple[str, ...]:
    try:
        return parse_table_name(pattern, argument="pattern")
    except InvalidArgumentError as error:
        message = str(error.detail).replace("is not a table name", "is not a pattern of table names")
        raise InvalidArgumentError(message, argument="pattern", value=pattern, hint=_PATTERN_RULE) from None


def _readings(view: SessionView, parts: tuple[str, ...], catalog: str | None) -> list[list[ResolvedName]]:
    """Return the meanings that a pattern may have, the most likely one first."""
    known = known_catalogs(view)
    if parts == ("*",):
        name = default_catalog(view, known) if catalog is None else required_catalog(catalog, known)
        return [[ResolvedName(name, ("*",))]]
    if len(parts) > 2 and _is_pattern(parts[0]) and catalog is None:
        named = [ResolvedName(name, parts[1:]) for name in known if fnmatchcase(name, parts[0])]
        return [named] if named else [[resolve_name(view, parts, known)]]
    first_is_catalog = len(parts) == 2 and parts[0] in known and catalog in (None, parts[0])
    try:
        readings = [[resolve_name(view, parts, known, catalog=catalog)]]
    except NotFoundError:
        # Without a default catalog, `lake.*` can only mean the catalog.
        if not first_is_catalog:
            raise
        readings = []
    as_catalog = ResolvedName(parts[0], parts[1:])
    if first_is_catalog and [as_catalog] not in readings:
        readings.append([as_catalog])
    return readings


def _matches(view: SessionView, target: ResolvedName) -> list[MatchingTable]:
    wanted = target.identifier
    # Only the namespaces before the first wildcard need to be listed.
    below = wanted[: next((i for i, part in enumerate(wanted[:-1]) if _is_pattern(part)), len(wanted) - 1)]
    opened = open_catalog(view, target.catalog)
    entries = list_entries(opened, below, consequence="so its tables are unknown")
    return [
        MatchingTable(target.catalog, tuple(entry.identifier), entry.is_view)
        for entry in entries
        if _fits(entry.identifier, wanted)
    ]


def _fits(identifier: Sequence[str], wanted: Sequence[str]) -> bool:
    # A name with a wildcard's character in it matches itself.
    return tuple(identifier) == tuple(wanted) or fnmatchcase(_SEPARATOR.join(identifier), _SEPARATOR.join(wanted))


def _is_pattern(part: str) -> bool:
    return not _WILDCARDS.isdisjoint(part)
