"""pyiceberg's predicates as plain functions: its pydantic constructors do not type-check as they are called."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from pyiceberg import expressions
from pyiceberg.expressions import And, BooleanExpression, Or
from pyiceberg.expressions.literals import Literal

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


def compared(column: str, operator: str, constant: Literal[Any] | str | Collection[Literal[Any]]) -> BooleanExpression:
    """`column operator constant` for one of = != < <= > >= in, not in, starts with, not starts with."""
    made: BooleanExpression = _CLASSES[operator](column, constant)
    return made


def is_null(column: str) -> BooleanExpression:
    return _alone("null", column)


def not_null(column: str) -> BooleanExpression:
    return _alone("not null", column)


def is_nan(column: str) -> BooleanExpression:
    return _alone("nan", column)


def not_nan(column: str) -> BooleanExpression:
    """True of null too."""
    return _alone("not nan", column)


def all_of(parts: Sequence[BooleanExpression]) -> BooleanExpression:
    """AND over the parts as a shallow tree: a long chain must not exhaust the stack."""
    middle = len(parts) // 2
    return parts[0] if len(parts) == 1 else And(all_of(parts[:middle]), all_of(parts[middle:]))


def any_of(parts: Sequence[BooleanExpression]) -> BooleanExpression:
    """OR over the parts as a shallow tree."""
    middle = len(parts) // 2
    return parts[0] if len(parts) == 1 else Or(any_of(parts[:middle]), any_of(parts[middle:]))


def _alone(kind: str, column: str) -> BooleanExpression:
    made: BooleanExpression = _CLASSES[kind](column)
    return made
