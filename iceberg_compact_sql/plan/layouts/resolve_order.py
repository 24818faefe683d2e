"""From strategy, sort_order and table to the order of a run: columns by id, and the table's order that equals it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import IdentityTransform, parse_transform
from pyiceberg.types import NestedField, PrimitiveType, StructType, UnknownType

from iceberg_compact_sql.errors import IcebergError, IcebergKind, InvalidArgumentError, did_you_mean
from iceberg_compact_sql.plan.layouts.named_order import NamedField, NamedOrder, refused
from iceberg_compact_sql.plan.layouts.order import ClusterOrder, Layout, OrderField

_EXAMPLE = "Give sort_order, such as 'id DESC NULLS LAST' or 'zorder(a, b)'."
# A position on a curve is one word of 64 bits, at least one for each column.
_MOST_CURVE_COLUMNS = 64
# What Iceberg's messages call the curves.
_ICEBERG_NAMES = {"zorder": "ZOrder", "hilbert": "HILBERT"}


@dataclass(frozen=True)
class OrderRequest:
    """The arguments of a call that decide its order. `layout` is None if only sort_order says it."""

    layout: Layout | None
    text: str | None
    curve_bytes: int | None = None
    text_bytes: int | None = None


@dataclass(frozen=True)
class OrderTable:
    """What an order needs of a table. Names are compared as the session does."""

    name: str
    schema: Schema
    orders: Sequence[SortOrder]
    current_order: SortOrder
    output_spec: PartitionSpec | None
    case_sensitive: bool

    @classmethod
    def of(cls, name: str, metadata: TableMetadata, output_spec_id: int | None, *, case_sensitive: bool) -> OrderTable:
        by_id = {order.order_id: order for order in metadata.sort_orders}
        current = by_id.get(metadata.default_sort_order_id, SortOrder(order_id=0))
        spec_id = metadata.default_spec_id if output_spec_id is None else output_spec_id
        return cls(
            name, metadata.schema(), metadata.sort_orders, current, metadata.specs().get(spec_id), case_sensitive
        )


@dataclass(frozen=True)
class ResolvedOrder:
    """An order in the columns of a table, and what the user should know about it."""

    order: ClusterOrder
    notes: tuple[str, ...] = ()


def resolve_order(request: OrderRequest, table: OrderTable) -> ResolvedOrder:
    """Return the order of a run: that of `sort_order`, else the table's own; raise if there is none or it is wrong."""
    if request.text is None:
        layout, fields = request.layout or "sort", _own_fields(request, table)
    else:
        # Imported late: executors that run a table function without sort_order need no sqlglot.
        from iceberg_compact_sql.plan.layouts.parse_order import parse_order

        named = parse_order(request.text)
        layout = _layout(request, named)
        fields = tuple(_resolved(field, layout, request.text, table) for field in named.fields)
    if layout == "sort":
        return ResolvedOrder(ClusterOrder("sort", fields, _matching_order_id(fields, table.orders)))
    return _curve(layout, fields, request, table)


def _layout(request: OrderRequest, named: NamedOrder) -> Layout:
    """A curve in the text wins over `sort`, as in Iceberg; the strategy makes plain columns a curve."""
    if request.layout in (None, "sort", named.layout):
        return named.layout
    assert request.layout is not None
    if named.layout != "sort":
        raise refused(
            f"strategy is '{request.layout}', and the order is {named.layout}(...)",
            request.text,
            hint="Give one of them, or the same in both.",
        )
    if any(field.transform != "identity" for field in named.fields):
        raise refused(
            f"strategy '{request.layout}' takes plain columns, without transforms",
            request.text,
            hint="Name the columns, such as 'user_id, at'.",
        )
    return request.layout


def _own_fields(request: OrderRequest, table: OrderTable) -> tuple[OrderField, ...]:
    if not table.current_order.fields:
        raise InvalidArgumentError(
            f"strategy '{request.layout}' needs an order, and table '{table.name}' has none of its own",
            argument="sort_order",
            hint=_EXAMPLE,
            iceberg=IcebergError(
                f"Cannot sort data without a valid sort order, table '{table.name}' is unsorted and no sort order is "
                "provided"
            ),
        )
    fields = tuple(_order_field(field) for field in table.current_order.fields)
    for field in fields:
        try:
            column = table.schema.find_field(field.source_id)
            usable = _can_order(column, field.transform)
        except ValueError:
            usable = False
        if not usable:
            raise InvalidArgumentError(
                f"the table's own order cannot be used: {field.transform} of column {field.source_id}",
                argument="sort_order",
                hint=_EXAMPLE,
            )
    return fields


def _order_field(field: SortField) -> OrderField:
    return OrderField(
        field.source_id,
        str(field.transform),
        field.direction is SortDirection.DESC,
        field.null_order is NullOrder.NULLS_FIRST,
    )


def _matching_order_id(fields: tuple[OrderField, ...], orders: Sequence[SortOrder]) -> int:
    """Return the id of the table's order, current or old, that is exactly this one; 0 if there is none."""
    for order in orders:
        if order.fields and tuple(map(_order_field, order.fields)) == fields:
            return order.order_id
    return 0


def _resolved(named: NamedField, layout: Layout, text: str, table: OrderTable) -> OrderField:
    column = _find(named, layout, text, table)
    kind = column.field_type
    if not isinstance(kind, PrimitiveType) or isinstance(kind, UnknownType):
        raise refused(
            f"column '{named.column}' is of type {kind}, which has no order",
            text,
            hint="Name a field inside it." if isinstance(kind, StructType) else None,
            iceberg=IcebergError(f"Cannot sort by non-primitive source field: {kind}", IcebergKind.VALIDATION),
        )
    if not _can_order(column, named.transform):
        name = named.transform.partition("[")[0]
        sentence = f"Cannot bind: {named.transform} cannot transform {kind} values from '{named.column}'"
        raise refused(
            f"{name}() does not take column '{named.column}' of type {kind}",
            text,
            iceberg=IcebergError(sentence, IcebergKind.VALIDATION),
        )
    return OrderField(column.field_id, named.transform, named.descending, named.nulls_first)


def _can_order(column: NestedField, transform: str) -> bool:
    kind = column.field_type
    return isinstance(kind, PrimitiveType) and bool(parse_transform(transform).can_transform(kind))


def _find(named: NamedField, layout: Layout, text: str, table: OrderTable) -> NestedField:
    """Return the column of a name, level by level through structs, in the session's way to compare names."""
    fields: Sequence[NestedField] = table.schema.fields
    for depth, part in enumerate(named.name):
        alike = [field for field in fields if table.case_sensitive or field.name.lower() == part.lower()]
        found = [field for field in alike if not table.case_sensitive or field.name == part]
        if len(found) > 1:
            names = ", ".join(field.name for field in found)
            raise refused(
                f"'{part}' may be any of {names}", text, hint="Set spark.sql.caseSensitive to true to choose one."
            )
        if not found:
            raise _no_such_column(named, layout, text, table, [field.name for field in fields])
        [column] = found
        if depth + 1 == len(named.name):
            return column
        if not isinstance(column.field_type, StructType):
            raise refused(
                f"'{named.column}' is inside column '{column.name}' of type {column.field_type}",
                text,
                hint="Only columns and fields of structs have an order.",
                iceberg=IcebergError(
                    f"Cannot find field '{named.column}' in struct: {table.schema.as_struct()}", IcebergKind.VALIDATION
                ),
            )
        fields = column.field_type.fields
    raise AssertionError("a name has at least one part")


def _no_such_column(
    named: NamedField, layout: Layout, text: str, table: OrderTable, near: Sequence[str]
) -> InvalidArgumentError:
    struct = table.schema.as_struct()
    iceberg = IcebergError(f"Cannot find field '{named.column}' in struct: {struct}", IcebergKind.VALIDATION)
    if layout != "sort":
        shown = str(table.case_sensitive).lower()
        iceberg = IcebergError(
            f"Cannot find column '{named.column}' in table schema (case sensitive = {shown}): {struct}"
        )
    listed = f"Columns: {', '.join(f'{field.name} {field.field_type}' for field in table.schema.fields[:20])}."
    return refused(
        f"there is no column '{named.column}'",
        text,
        hint=f"{did_you_mean(named.name[-1], near) or ''} {listed}".strip(),
        iceberg=iceberg,
    )


def _curve(layout: Layout, fields: tuple[OrderField, ...], request: OrderRequest, table: OrderTable) -> ResolvedOrder:
    """Leave identity partition columns out: they have one value in a partition, and would take bits from the others."""
    spec = table.output_spec
    constant = {
        field.source_id
        for field in (spec.fields if spec is not None else ())
        if isinstance(field.transform, IdentityTransform)
    }
    sources = dict.fromkeys(field.source_id for field in fields)
    kept = [source for source in sources if source not in constant]
    left_out = [table.schema.find_column_name(source) or str(source) for source in sources if source in constant]
    if not kept:
        name = _ICEBERG_NAMES[layout]
        raise refused(
            f"all columns of {layout}() are identity partition columns, which have one value in each partition",
            request.text,
            hint="Name other columns.",
            iceberg=IcebergError(
                f"Cannot {name}, all columns provided were identity partition columns and cannot be used"
            ),
        )
    if len(kept) > _MOST_CURVE_COLUMNS:
        raise refused(
            f"{layout}() has {len(kept)} columns, and a curve takes at most {_MOST_CURVE_COLUMNS}",
            request.text,
            hint="Name the two to four columns that filters use most.",
        )
    order = ClusterOrder(
        layout, tuple(map(OrderField, kept)), curve_bytes=request.curve_bytes, text_bytes=request.text_bytes
    )
    notes = [f"{layout} without {', '.join(left_out)}: identity partition columns have one value"] if left_out else []
    return ResolvedOrder(order, tuple(notes))
