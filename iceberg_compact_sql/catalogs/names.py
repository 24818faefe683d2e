"""Parses table names, and resolves them in a session by Spark's rules, then by ours where Spark has none."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from iceberg_compact_sql.catalogs.session_view import SETTING_PREFIX, SessionView
from iceberg_compact_sql.errors import IcebergError, InvalidArgumentError, NotFoundError, UnsupportedError

_PART = re.compile(r"`((?:[^`]|``)+)`|([^`.\s](?:[^`.]*[^`.\s])?)")
EMBEDDED_CATALOG = "local"
SESSION_CATALOG = "spark_catalog"
_NAME_RULE = "Write 't', 'db.t' or 'catalog.db.t', with backticks around a part that has a dot in it."


class Origin(str, Enum):
    """Where a catalog is declared."""

    SPARK = "spark"
    EMBEDDED = "embedded"
    PYICEBERG = "pyiceberg"


@dataclass(frozen=True, slots=True)
class ResolvedName:
    """A catalog and the namespace levels and table in it."""

    catalog: str
    identifier: tuple[str, ...]


def parse_table_name(text: str, *, argument: str = "table") -> tuple[str, ...]:
    """Return the parts of a dotted name; backticks keep dots inside a part, and a doubled backtick stands for one.

    >>> parse_table_name("`a.b`.`it``s`.c")
    ('a.b', 'it`s', 'c')
    """
    if not isinstance(text, str) or not text.strip():
        raise InvalidArgumentError("the table name is empty", argument=argument, value=text, hint=_NAME_RULE)
    name, parts, position = text.strip(), list[str](), 0
    while True:
        match = _PART.match(name, position)
        if match is None or (match.end() < len(name) and name[match.end()] != "."):
            message = f"{argument} is set to {text!r}, which is not a table name"
            raise InvalidArgumentError(message, argument=argument, value=text, hint=_NAME_RULE)
        parts.append(match[1].replace("``", "`") if match[1] is not None else match[2])
        if match.end() == len(name):
            return tuple(parts)
        position = match.end() + 1


def quote_name(parts: Sequence[str]) -> str:
    """Return the name with every part in backticks, safe to put into SQL.

    >>> quote_name(["lake", "a.b", "t"])
    '`lake`.`a.b`.`t`'
    """
    return ".".join("`" + part.replace("`", "``") + "`" for part in parts)


def show_name(parts: Sequence[str]) -> str:
    """Return the name for a message: backticks only around parts that need them."""
    return ".".join(part if re.fullmatch(r"[\w\-]+", part) else quote_name([part]) for part in parts)


def closest_name(given: str, candidates: Collection[str]) -> str | None:
    """Return a "Did you mean" question with the closest candidate, or None."""
    by_lower = {candidate.lower(): candidate for candidate in candidates}
    close = difflib.get_close_matches(given.lower(), list(by_lower), n=1, cutoff=0.6)
    return f"Did you mean '{by_lower[close[0]]}'?" if close else None


def resolve_name(
    view: SessionView, parts: tuple[str, ...], known: Mapping[str, Origin], *, catalog: str | None = None
) -> ResolvedName:
    """Resolve a parsed name; `known` are the Iceberg catalogs, `catalog` is the one that qualifies the CALL.

    As in Spark, the first part is a catalog if Spark has one of that name. Catalogs that Spark does not have (embedded,
    or in pyiceberg's configuration) match the first part only if a namespace and a table follow, since a namespace may
    have the same name (`default.t`).
    """
    first = parts[0]
    names_catalog = len(parts) > 1 and (known.get(first) is Origin.SPARK or (len(parts) > 2 and first in known))
    if names_catalog:
        if catalog is not None and catalog != first:
            message = (
                f"the procedure is called in catalog {catalog!r}, but '{show_name(parts)}' is in catalog {first!r}"
            )
            hint = f"Call {show_name([first])}.system.<procedure> or leave the catalog out."
            raise InvalidArgumentError(
                message,
                argument="table",
                value=show_name(parts),
                hint=hint,
                iceberg=_in_another_catalog(catalog, parts),
            )
        return ResolvedName(first, parts[1:])
    if len(parts) > 1 and _is_foreign_catalog(view, first):
        message = f"catalog {first!r} is not an Iceberg catalog"
        raise UnsupportedError(
            message,
            argument="table",
            value=show_name(parts),
            hint=_candidates(known),
            iceberg=None if catalog is None else _in_another_catalog(catalog, parts),
        )
    target_catalog = default_catalog(view, known) if catalog is None else required_catalog(catalog, known)
    if len(parts) > 1:
        return ResolvedName(target_catalog, parts)
    namespace = _default_namespace(view, target_catalog)
    if not namespace:
        message = f"'{show_name(parts)}' names no namespace, and catalog {target_catalog!r} has no current one"
        raise NotFoundError(message, argument="table", value=show_name(parts), hint=f"Write 'db.{show_name(parts)}'.")
    return ResolvedName(target_catalog, (*namespace, *parts))


def _in_another_catalog(catalog: str, parts: tuple[str, ...]) -> IcebergError:
    return IcebergError(
        f"Cannot run procedure in catalog '{catalog}': '{show_name(parts[1:])}' is a table in catalog '{parts[0]}'"
    )


def default_catalog(view: SessionView, known: Mapping[str, Origin]) -> str:
    """Return the catalog of a name without one: Spark's current one, else our setting, the embedded or the only one."""
    if known.get(view.current_catalog) is Origin.SPARK:
        return view.current_catalog
    if setting := view.setting("catalog"):
        return required_catalog(setting, known, f"{SETTING_PREFIX}catalog")
    if view.embedded_warehouse is not None and EMBEDDED_CATALOG in known:
        return EMBEDDED_CATALOG
    if len(known) == 1:
        return next(iter(known))
    state = "no Iceberg catalog is configured" if not known else "more than one Iceberg catalog is configured"
    message = f"{state}, and Spark's current catalog {view.current_catalog!r} is not one"
    raise NotFoundError(message, argument="table", hint=_candidates(known))


def _default_namespace(view: SessionView, target_catalog: str) -> tuple[str, ...]:
    """Return the namespace of a bare table name: Spark's current namespace, or the catalog's default."""
    declared = view.conf.get(f"spark.sql.catalog.{target_catalog}.default-namespace")
    if target_catalog == view.current_catalog:
        return view.current_namespace or (parse_table_name(declared) if declared else ())
    if declared:
        return parse_table_name(declared)
    # Spark's session catalog always has a current namespace (`default`); USE db there applies to our catalog too.
    return view.current_namespace if view.current_catalog == SESSION_CATALOG else ()


def _is_foreign_catalog(view: SessionView, name: str) -> bool:
    return name == SESSION_CATALOG or f"spark.sql.catalog.{name}" in view.conf


def required_catalog(name: str, known: Mapping[str, Origin], what: str = "the procedure's catalog") -> str:
    """Return the name; raise if no Iceberg catalog has it. `what` says in the message where the name comes from."""
    if name in known:
        return name
    near = closest_name(name, list(known))
    message = f"{what} is {name!r}, and no Iceberg catalog of that name is configured"
    raise NotFoundError(
        message, argument="catalog", value=name, hint=" ".join(filter(None, (near, _candidates(known))))
    )


def _candidates(known: Mapping[str, Origin]) -> str:
    if known:
        names = ", ".join(repr(name) for name in sorted(known))
        return f"Configured: {names}. Write 'catalog.db.t', or set {SETTING_PREFIX}catalog."
    return (
        "Set spark.sql.catalog.<name> = org.apache.iceberg.spark.SparkCatalog with its type and uri, "
        "describe it in ~/.pyiceberg.yaml, or call register(spark, warehouse='./lake') for an embedded one."
    )
