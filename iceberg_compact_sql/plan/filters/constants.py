"""The constants of a filter: detect them in the syntax tree and evaluate them."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

from sqlglot import exp

from iceberg_compact_sql.call.literals import Evaluator, TextSettings
from iceberg_compact_sql.plan.filters.comparisons import Unusable, read_date, read_number, read_timestamp
from iceberg_compact_sql.units import whole_part, zone

_Type = exp.DataType.Type
_WHOLE = {_Type.TINYINT, _Type.SMALLINT, _Type.INT, _Type.BIGINT}
_FLOATING = {_Type.FLOAT, _Type.DOUBLE}
_TEXT = {_Type.TEXT, _Type.VARCHAR, _Type.CHAR}
_MOMENT = {_Type.TIMESTAMP, _Type.TIMESTAMPTZ, _Type.TIMESTAMPLTZ, _Type.TIMESTAMPNTZ, _Type.DATETIME}

_ARITHMETIC = (
    exp.Add,
    exp.Sub,
    exp.Mul,
    exp.Anonymous,
    exp.CurrentDate,
    exp.CurrentTimestamp,
    exp.Concat,
    exp.RawString,
    exp.TsOrDsAdd,
)
_BOTH_SIDES = frozenset({"this", "expression"})
# The arguments of sqlglot's nodes that we support.
_ARGUMENTS: dict[type, frozenset[str]] = {
    **dict.fromkeys((exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ), _BOTH_SIDES),
    **dict.fromkeys((exp.And, exp.Or, exp.Is, exp.StartsWith), _BOTH_SIDES),
    exp.Like: frozenset({"this", "expression", "negate"}),
    exp.In: frozenset({"this", "expressions"}),
    exp.Between: frozenset({"this", "low", "high"}),
    exp.Cast: frozenset({"this", "to"}),
    exp.TryCast: frozenset({"this", "to", "safe", "requires_string"}),
    exp.TsOrDsToDate: frozenset({"this", "safe"}),
}


def refuse_unknown_parts(node: exp.Expression) -> None:
    """Refuse a node with unknown arguments, which newer versions of sqlglot may add: they may change its meaning."""
    known = _ARGUMENTS.get(type(node))
    if known is not None:
        extra = [name for name, value in node.args.items() if name not in known and value not in (None, False, [])]
        if extra:
            raise Unusable(f"{', '.join(extra)} cannot be used here")


def is_constant(node: exp.Expression) -> bool:
    """Whether the expression has no column."""
    if isinstance(node, (exp.Literal, exp.Column)):
        return isinstance(node, exp.Literal)
    return not any(isinstance(part, (exp.Column, exp.Dot)) for part in node.walk())


def constant_of(node: exp.Expression, time_zone: str, now_ms: int | None = None) -> Any:
    """The value of a constant: a string, number, boolean, date, timestamp, or None for NULL; others are refused."""
    refuse_unknown_parts(node)
    if isinstance(node, exp.Paren):
        return constant_of(node.this, time_zone, now_ms)
    if isinstance(node, exp.Null):
        return None
    if isinstance(node, exp.Boolean):
        return bool(node.this)
    if isinstance(node, exp.Neg):
        number = constant_of(node.this, time_zone, now_ms)
        if number is None:
            return None
        if not _is_number(number):
            raise Unusable("only a number can be negative")
        return -number
    if isinstance(node, exp.Literal):
        return str(node.this) if node.is_string else _read_literal(str(node.this))
    if isinstance(node, (exp.Cast, exp.TryCast)):
        return _cast(constant_of(node.this, time_zone, now_ms), node, time_zone)
    if now_ms is not None and isinstance(node, _ARITHMETIC):
        return _evaluate(node, time_zone, now_ms)
    raise Unusable(f"{node.sql(dialect='spark')} is not a constant that can be used here")


def _evaluate(node: exp.Expression, time_zone: str, now_ms: int) -> Any:
    """Constant arithmetic such as `current_date() - INTERVAL 7 DAYS`, by the same rules as arguments of a CALL."""
    now = dt.datetime.fromtimestamp(now_ms / 1000, tz=dt.timezone.utc)
    try:
        value = Evaluator(None, now, TextSettings(time_zone)).value(node)
    except (ValueError, OverflowError) as error:
        raise Unusable(str(error)) from None
    if not (_is_number(value) or isinstance(value, (str, dt.date))):
        raise Unusable(f"{node.sql(dialect='spark')} is not a value that a column can be compared with")
    return value


def _cast(value: Any, node: exp.Cast, time_zone: str) -> Any:
    if value is None:
        return None
    kind = node.to.this
    text = value if isinstance(value, str) else None
    if kind == _Type.DATE and text is not None:
        return read_date(text)
    if kind == _Type.DATE and isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        return value
    if kind in _MOMENT and text is not None:
        moment = read_timestamp(text)
        if kind == _Type.TIMESTAMPNTZ:
            # Spark drops a zone in the string.
            return moment.replace(tzinfo=None)
        if moment.tzinfo is not None:
            return moment
        return moment.replace(tzinfo=zone(time_zone))
    if kind in _WHOLE and (_is_number(value) or text is not None):
        return _whole(value, text)
    if kind in _FLOATING and (_is_number(value) or text is not None):
        try:
            return float(value)
        except (ValueError, OverflowError):
            raise Unusable(f"'{value}' is not a number") from None
    if (kind in _TEXT and text is not None) or (kind == _Type.BOOLEAN and isinstance(value, bool)):
        return value
    raise Unusable(f"{node.sql(dialect='spark')} is a cast that cannot be used here")


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, Decimal)) and not isinstance(value, bool)


def _read_literal(text: str) -> int | float | Decimal:
    if text.isdigit():
        return int(text)
    return float(text) if "e" in text.lower() else read_number(text)


def _whole(value: Any, text: str | None) -> int:
    number = read_number(text) if text is not None else Decimal(value)
    try:
        whole = whole_part(number)
    except (ValueError, OverflowError):
        raise Unusable(f"'{value}' is not a whole number") from None
    if text is not None and number != whole:
        raise Unusable(f"'{value}' is not a whole number")
    return whole
