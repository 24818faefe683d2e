"""The order of rows that a clustering run writes, as plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

Layout = Literal["sort", "zorder", "hilbert"]
LAYOUTS: tuple[Layout, ...] = get_args(Layout)
# How many files of a partition may overlap before they are clustered again.
DEFAULT_MAX_DEPTH = 4
# The strategies of `compact_table`, in the order in which help and documents show them.
STRATEGY_NAMES: tuple[str, ...] = ("binpack", *LAYOUTS)


@dataclass(frozen=True, slots=True)
class OrderField:
    """One key of an order: a transform of a column, its direction, and the place of nulls.

    `transform` is Iceberg's text of it (`identity`, `bucket[16]`, `day`). NaN is above every number.
    """

    source_id: int
    transform: str = "identity"
    descending: bool = False
    nulls_first: bool = True


@dataclass(frozen=True, slots=True)
class ClusterOrder:
    """How the rows of a group are laid out: sorted by the fields, or along a curve over the ranks of their values.

    `sort_order_id` is the id of the table's order that equals this one; 0 if there is none, and for curves.
    `curve_bytes` limits the bytes of a position on a curve, and `text_bytes` those of a string that count for it.
    """

    layout: Layout
    fields: tuple[OrderField, ...]
    sort_order_id: int = 0
    curve_bytes: int | None = None
    text_bytes: int | None = None

    @property
    def is_curve(self) -> bool:
        return self.layout != "sort" and len(self.fields) > 1

    @property
    def text(self) -> str:
        """The order by field ids; recorded in the snapshot summary, so that a later run knows what is in order.

        >>> ClusterOrder("sort", (OrderField(3, descending=True, nulls_first=False), OrderField(1, "day"))).text
        'sort(3:identity:desc:last,1:day:asc:first)'
        """
        if self.layout != "sort":
            return f"{self.layout}({','.join(str(field.source_id) for field in self.fields)})"
        fields = (
            f"{field.source_id}:{field.transform}:{'desc' if field.descending else 'asc'}"
            f":{'first' if field.nulls_first else 'last'}"
            for field in self.fields
        )
        return f"sort({','.join(fields)})"
