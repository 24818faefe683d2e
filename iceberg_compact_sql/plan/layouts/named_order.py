"""A `sort_order` with the names of its columns, before a table gives them ids, and the error for one that is refused.

Needs no parser: a table function that is given no order works on executors without sqlglot.
"""

from __future__ import annotations

from dataclasses import dataclass

from iceberg_compact_sql.errors import IcebergError, InvalidArgumentError
from iceberg_compact_sql.plan.layouts.order import Layout


@dataclass(frozen=True, slots=True)
class NamedField:
    """One key of an order by the name of its column, part by part; `transform` is Iceberg's text of it."""

    name: tuple[str, ...]
    transform: str = "identity"
    descending: bool = False
    nulls_first: bool = True

    @property
    def column(self) -> str:
        return ".".join(self.name)


@dataclass(frozen=True, slots=True)
class NamedOrder:
    """A `sort_order` as written: sorted by fields, or a curve over columns."""

    layout: Layout
    fields: tuple[NamedField, ...]


def refused(
    reason: str, text: str | None, *, hint: str | None = None, iceberg: IcebergError | None = None
) -> InvalidArgumentError:
    """Return the error for a sort_order that is readable or not, but cannot be used."""
    return InvalidArgumentError(
        f"sort_order is refused: {reason}", argument="sort_order", value=text, hint=hint, iceberg=iceberg
    )
