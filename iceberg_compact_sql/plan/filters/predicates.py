"""Functions that make pyiceberg's predicates: mypy rejects direct calls of their pydantic constructors."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from pyiceberg import expressions
from pyiceberg.expressions import And, BooleanExpression, Or
from pyiceberg.expressions.literals import Literal

from iceberg_compact_sql.table.bucket_term import BucketTerm

# The left side of a predicate: a column by its full name, or the bucket of its value.
Subject = str | BucketTerm
_CLASSES: dict[str, Any] = {
    "=": expressions.EqualTo,
    "!=": expressions.NotEqualTo,
    "<": expressions.LessThan,
    "<=": expressions.LessThanOrEqual,
    ">": expressions.GreaterThan,
    ">=": expressions.GreaterThanOrEqual,
    "in": expressions.In,
    "not in": expressions.NotIn,
    "starts with": expressions.StartsWith,
    "not starts with": expressions.NotStartsWith,
    "null": expressions.IsNull,
    "not null": expressions.NotNull,
    "nan": expressions.IsNaN,
    "not nan": expressions.NotNaN,
}


def compared(
    column: Subject, operator: str, constant: Literal[Any] | str | Collection[Literal[Any]]
) -> BooleanExpression:
    """`column operator constant` for one of = != < <= > >= in, not in, starts with, not starts with."""
    predicate: BooleanExpression = _CLASSES[operator](column, constant)
    return predicate


def is_null(column: Subject) -> BooleanExpression:
    return _unary("null", column)


def not_null(column: Subject) -> BooleanExpression:
    return _unary("not null", column)


def is_nan(column: Subject) -> BooleanExpression:
    return _unary("nan", column)


def not_nan(column: Subject) -> BooleanExpression:
    """Also true for null."""
    return _unary("not nan", column)


def all_of(parts: Sequence[BooleanExpression]) -> BooleanExpression:
    """AND of the parts; several `!=` of one column become one NOT IN."""
    return _balanced_tree(And, _merge_comparisons(parts, expressions.NotEqualTo, "not in"))


def any_of(parts: Sequence[BooleanExpression]) -> BooleanExpression:
    """OR of the parts; several `=` of one column become one IN."""
    return _balanced_tree(Or, _merge_comparisons(parts, expressions.EqualTo, "in"))


def _balanced_tree(connective: Any, parts: Sequence[BooleanExpression]) -> BooleanExpression:
    """A balanced tree of AND or OR: pyiceberg's visitors recurse, and a long chain would exhaust the stack."""
    middle = len(parts) // 2
    return (
        parts[0]
        if len(parts) == 1
        else connective(_balanced_tree(connective, parts[:middle]), _balanced_tree(connective, parts[middle:]))
    )


def _merge_comparisons(parts: Sequence[BooleanExpression], kind: Any, operator: str) -> list[BooleanExpression]:
    """Merge comparisons of one kind and column into one, for speed: pyiceberg evaluates each part for every file."""
    constants: dict[Subject, set[Literal[Any]]] = {}
    others: list[BooleanExpression] = []
    for part in parts:
        if type(part) is kind:
            subject = part.term if isinstance(part.term, BucketTerm) else part.term.name
            constants.setdefault(subject, set()).add(part.literal)
        else:
            others.append(part)
    return [*others, *(compared(column, operator, values) for column, values in constants.items())]


def _unary(kind: str, column: Subject) -> BooleanExpression:
    # A bucket is null when its column is null.
    predicate: BooleanExpression = _CLASSES[kind](column.name if isinstance(column, BucketTerm) else column)
    return predicate
