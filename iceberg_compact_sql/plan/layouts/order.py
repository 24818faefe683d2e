"""The order of rows that a clustering run writes, as plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

Layout = Literal["sort", "zorder", "hilbert"]
# The strategies of `compact_table`, in the order in which help and documents show them. A name without a runner in
# `engine/strategies` is refused as not supported yet.
STRATEGY_NAMES: tuple[str, ...] = ("binpack", *get_args(Layout))


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
    """

    layout: Layout
    fields: tuple[OrderField, ...]
    sort_order_id: int = 0
