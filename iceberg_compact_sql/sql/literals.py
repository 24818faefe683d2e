"""Constant SQL expressions as Python values, evaluated here, and Python values as SQL text."""

from __future__ import annotations

import datetime as dt
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, DecimalException
from typing import Any

from sqlglot import exp

from iceberg_compact_sql.sql.units import Months, on_this_machine, parse_duration_ms, parse_timestamp, whole_part, zone

_ESCAPES = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a"}
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[01][0-7]{2}|.|\Z)|(''|\"\")", re.DOTALL)
_UNITS = {
    "microsecond": dt.timedelta(microseconds=1),
    "millisecond": dt.timedelta(milliseconds=1),
    "second": dt.timedelta(seconds=1),
    "minute": dt.timedelta(minutes=1),
    "hour": dt.timedelta(hours=1),
    "day": dt.timedelta(days=1),
    "week": dt.timedelta(weeks=1),
}
_SPAN = re.compile(r"([+-])?\s*(?:(\d+)(?:\s+|\Z))?(?:(\d{1,2})(?::(\d{1,2})(?::(\d{1,2})(\.\d{1,9})?)?)?)?")
_YEARS_AND_MONTHS = re.compile(r"([+-])?\s*(\d{1,4})-(\d{1,2})")
EXPECTED = (
    "expected a constant: a string, number, true, false, NULL, DATE/TIMESTAMP '...', INTERVAL, array(...) or map(...)"
)


@dataclass
class Evaluator:
    """Evaluates constant expressions of one CALL: `parameters` are the values behind `:name` and `?`."""

    parameters: Mapping[str, Any] | Sequence[Any] | None
    now: dt.datetime
    time_zone: str
    _used: int = 0

    def value(self, node: Any) -> Any:
        """The constant that a node stands for; ValueError with a sentence when it is not one."""
        for kind, evaluate in _EVALUATORS.items():
            if isinstance(node, kind):
                return evaluate(self, node)
        raise ValueError(EXPECTED)

    @property
    def moment_of_call(self) -> dt.datetime:
        """`current_timestamp()`, on the session's clock: days and months are counted there."""
        return self.now.astimezone(zone(self.time_zone))

    def marker(self, node: exp.Placeholder) -> Any:
        name = node.text("this")
        if node.args.get("widget"):
            raise ValueError("{...} is not a constant; use :name markers with args=")
        if name:
            if isinstance(self.parameters, Mapping) and name in self.parameters:
                return _plain(self.parameters[name])
            raise ValueError(f"marker :{name} has no value; pass spark.sql(..., args={{'{name}': ...}})")
        if self.parameters is None or isinstance(self.parameters, Mapping) or self._used >= len(self.parameters):
            raise ValueError("marker ? has no value; pass spark.sql(..., args=[...])")
        self._used += 1
        return _plain(self.parameters[self._used - 1])

    def function(self, node: exp.Anonymous) -> Any:
        if node.name.lower() == "now" and not node.expressions:
            return self.moment_of_call
        raise ValueError(f"function {node.name}() is not evaluated here; {EXPECTED}")

    def cast(self, node: exp.Cast) -> Any:
        value, target = self.value(node.this), node.to.this
        if value is None:
            return None
        if target in _TIMESTAMPS:
            moment = _moment(value)
            return moment if moment.tzinfo or target in _WITHOUT_ZONE else moment.replace(tzinfo=zone(self.time_zone))
        if target in exp.DataType.INTEGER_TYPES:
            return _whole(value)
        convert = _CASTS.get(target)
        if convert is None:
            raise ValueError(f"a cast to {node.to.sql('spark')} is not evaluated here")
        try:
            return convert(value)
        except TypeError:
            raise ValueError(f"{value!r} cannot be cast to {node.to.sql('spark')}") from None

    def arithmetic(self, node: exp.Binary) -> Any:
        left, right = self.value(node.this), self.value(node.expression)
        if left is None or right is None:
            return None
        if isinstance(node, exp.DPipe):
            return _text(left) + _text(right)
        if isinstance(left, Months) or isinstance(right, Months):
            return _calendar(type(node), left, right)
        if {type(left), type(right)} == {float, Decimal}:
            left, right = float(left), float(right)
        if any(isinstance(side, (bool, str, list, Mapping)) for side in (left, right)):
            raise ValueError(f"cannot calculate {node.sql('spark')}: the types do not fit")
        if isinstance(left, dt.date) and not isinstance(left, dt.datetime) and isinstance(right, (dt.timedelta, int)):
            # Spark: date +- day interval is a date; +- anything finer is a timestamp.
            days = dt.timedelta(days=right) if isinstance(right, int) else right
            if days % dt.timedelta(days=1):
                left = dt.datetime(left.year, left.month, left.day, tzinfo=zone(self.time_zone))
            right = days
        if isinstance(right, dt.datetime) and isinstance(left, dt.timedelta) and isinstance(node, exp.Add):
            left, right = right, left
        if isinstance(left, dt.datetime) and isinstance(right, dt.timedelta) and isinstance(node, (exp.Add, exp.Sub)):
            return _shifted(left, right if isinstance(node, exp.Add) else -right)
        if isinstance(node, exp.Div) and isinstance(left, int) and isinstance(right, int):
            left = Decimal(left)
        try:
            return _OPERATORS[type(node)](left, right)
        except (TypeError, ArithmeticError, DecimalException) as error:
            why = (
                "division by zero"
                if isinstance(error, (ZeroDivisionError, DecimalException))
                else "the types do not fit"
            )
            raise ValueError(f"cannot calculate {node.sql('spark')}: {why}") from None

    def negative(self, node: exp.Neg) -> Any:
        value = self.value(node.this)
        if value is None:
            return None
        if isinstance(value, (int, float, Decimal, dt.timedelta, Months)) and not isinstance(value, bool):
            return -value
        raise ValueError(f"cannot calculate {node.sql('spark')}: the types do not fit")

    def interval(self, node: exp.Interval) -> dt.timedelta | Months:
        unit = node.args.get("unit")
        amount = self.value(node.this) if node.this is not None else None
        if unit is None and isinstance(amount, str):
            try:
                return dt.timedelta(milliseconds=parse_duration_ms(amount))
            except ValueError as error:
                raise ValueError(f"INTERVAL '{amount}' {error}") from None
        if unit is None or amount is None:
            raise ValueError("an INTERVAL needs a number and a unit, such as INTERVAL 7 DAYS")
        if isinstance(unit, exp.IntervalSpan):
            return _span(str(amount), unit.this.name.lower(), unit.expression.name.lower())
        name = unit.name.lower().rstrip("s")
        try:
            number = Decimal(str(amount).strip())
        except DecimalException:
            raise ValueError(f"INTERVAL '{amount}' {unit.name}: '{amount}' is not a number") from None
        if name in ("month", "year", "quarter"):
            return Months(whole_part(number) * {"month": 1, "quarter": 3, "year": 12}[name])
        if name not in _UNITS:
            raise ValueError(f"INTERVAL unit {unit.name} is not known; use {', '.join(_UNITS)}, month or year")
        return dt.timedelta(microseconds=whole_part(number * (_UNITS[name] // dt.timedelta(microseconds=1))))

    def add_days(self, node: exp.TsOrDsAdd) -> Any:
        start, days = self.value(node.this), self.value(node.expression)
        if isinstance(start, str):
            start = dt.date.fromisoformat(start.strip())
        if isinstance(start, dt.date) and isinstance(days, int) and str(node.args.get("unit")).upper() == "DAY":
            return (start.date() if isinstance(start, dt.datetime) else start) + dt.timedelta(days=days)
        raise ValueError(EXPECTED)

    def mapping(self, node: exp.Expression) -> dict[Any, Any]:
        keys, values = self.value(node.args["keys"]), self.value(node.args["values"])
        if len(keys) != len(values):
            raise ValueError("map(...) needs a value for each key")
        if any(isinstance(key, (Mapping, list)) for key in keys):
            raise ValueError("map(...) takes strings and numbers as keys")
        if len({*map(str, keys)}) != len(keys):
            raise ValueError("map(...) has the same key twice")
        return dict(zip(keys, values, strict=True))


def unquote(raw: str) -> str:
    """The value of a quoted SQL string as Spark 4.1 and later read it.

    >>> unquote("'it''s'"), unquote("'a" + chr(92) + "nb'") == "a" + chr(10) + "b", unquote('''"it''s"''')
    ("it's", True, "it''s")
    """
    delimiter = raw[0]

    def replaced(match: re.Match[str]) -> str:
        doubled, escaped = match[2], match[1]
        if doubled:
            return delimiter if doubled[0] == delimiter else doubled
        if escaped[:1] in ("u", "U") and len(escaped) > 1:
            return chr(int(escaped[1:], 16))
        if len(escaped) == 3:
            return chr(int(escaped, 8))
        if escaped in ("%", "_"):
            return "\\" + escaped
        return _ESCAPES.get(escaped, escaped)

    try:
        # Two escapes may be the halves of one character, as in Java.
        return _ESCAPE.sub(replaced, raw[1:-1]).encode("utf-16", "surrogatepass").decode("utf-16")
    except (ValueError, OverflowError):
        raise ValueError("has an escape that is no character") from None


def sql_literal(value: Any) -> str:
    """A Python value as SQL text that reads back as the same value."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return "'" + value.replace("\\", "\\\\").replace("'", "''").replace("\n", "\\n").replace("\r", "\\r") + "'"
    if isinstance(value, float):
        text = repr(value)
        return text if "e" in text else f"{text}e0"
    if isinstance(value, dt.datetime):
        return (
            f"TIMESTAMP '{value.isoformat(sep=' ')}'" if value.tzinfo else f"TIMESTAMP_NTZ '{value.isoformat(sep=' ')}'"
        )
    if isinstance(value, dt.date):
        return f"DATE '{value.isoformat()}'"
    if isinstance(value, dt.timedelta):
        return f"INTERVAL '{value // dt.timedelta(microseconds=1)}' MICROSECOND"
    if isinstance(value, Mapping):
        return f"map({', '.join(f'{sql_literal(k)}, {sql_literal(v)}' for k, v in value.items())})"
    if isinstance(value, (list, tuple)):
        return f"array({', '.join(map(sql_literal, value))})"
    return f"{value:f}BD" if isinstance(value, Decimal) else str(value)


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, (str, bool, int, float, Decimal, dt.date, dt.timedelta)):
        return on_this_machine(value)
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    raise ValueError(f"a marker's value of type {type(value).__name__} is not supported; pass a plain Python value")


def _number(node: exp.Literal) -> Any:
    if node.is_string:
        return node.this
    text = str(node.this)
    if text.isdigit():
        return int(text)
    return float(text) if "e" in text.lower() else Decimal(text)


def _name(node: exp.Column) -> Any:
    name = ".".join(part.name for part in node.parts)
    raise ValueError(f"{name} is a name, not a value; put it in quotes: '{name}'")


def _text(value: Any) -> str:
    if isinstance(value, (str, int, Decimal)) and not isinstance(value, bool):
        return str(value)
    raise ValueError("only strings and numbers can be joined with ||")


def _moment(value: Any) -> dt.datetime:
    if isinstance(value, dt.datetime):
        return value
    if isinstance(value, dt.date):
        return dt.datetime(value.year, value.month, value.day)
    if isinstance(value, str):
        return parse_timestamp(value.strip())
    raise ValueError(f"{value!r} is not a timestamp")


def _date(value: Any) -> dt.date:
    return _moment(value).date()


def _whole(value: Any) -> int:
    try:
        return whole_part(value) if isinstance(value, Decimal) else int(value)
    except (TypeError, ValueError):
        raise ValueError(f"{value!r} is not a whole number") from None


def _decimal(value: Any) -> Decimal:
    try:
        return Decimal(str(value))
    except DecimalException:
        raise ValueError(f"{value!r} is not a number") from None


def _span(text: str, start: str, end: str) -> dt.timedelta | Months:
    """An interval between two units: '1 02:03:04' DAY TO SECOND, '02:03' HOUR TO MINUTE, '1-2' YEAR TO MONTH."""
    told = text.strip()
    months = _YEARS_AND_MONTHS.fullmatch(told) if (start, end) == ("year", "month") else None
    if months is not None:
        count = int(months[2]) * 12 + int(months[3])
        return Months(-count if months[1] == "-" else count)
    if (start, end) == ("minute", "second"):
        # The same clock without its hours.
        told, start = re.sub(r"^([+-]?)", r"\g<1>0:", told), "hour"
    match = _SPAN.fullmatch(told)
    if match is None or start not in ("day", "hour") or (start == "day") != (match[2] is not None):
        raise ValueError(f"INTERVAL '{text}' {start.upper()} TO {end.upper()} cannot be read")
    span = dt.timedelta(
        days=int(match[2] or 0), hours=int(match[3] or 0), minutes=int(match[4] or 0), seconds=int(match[5] or 0)
    ) + dt.timedelta(microseconds=int((match[6] or ".0")[1:7].ljust(6, "0")))
    return -span if match[1] == "-" else span


def _shifted(moment: dt.datetime, span: dt.timedelta) -> dt.datetime:
    """Spark's sum: whole days on the wall clock of the moment's zone, what is finer in real time."""
    days = dt.timedelta(days=abs(span).days * (1 if span > dt.timedelta(0) else -1))
    later = moment + days
    if later.tzinfo is None:
        return later + (span - days)
    return (later.astimezone(dt.timezone.utc) + (span - days)).astimezone(later.tzinfo)


def _whole_quotient(left: Any, right: Any) -> Any:
    """DIV rounds towards zero, as in Java."""
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


def _remainder(left: Any, right: Any) -> Any:
    """What `%` leaves has the sign of the left side, as in Java."""
    rest = abs(left) % abs(right)
    return -rest if left < 0 else rest


def _calendar(kind: type, left: Any, right: Any) -> Any:
    if isinstance(left, dt.date) and isinstance(right, Months) and kind in (exp.Add, exp.Sub):
        return (right if kind is exp.Add else -right).added_to(left)
    if isinstance(left, Months) and isinstance(right, Months) and kind in (exp.Add, exp.Sub):
        return Months(_OPERATORS[kind](left.count, right.count))
    raise ValueError("months and years have no fixed length; subtract them from a date or timestamp, or use days")


_DType = exp.DataType.Type
_WITHOUT_ZONE = {_DType.TIMESTAMPNTZ}
_TIMESTAMPS = {_DType.TIMESTAMP, _DType.TIMESTAMPTZ, _DType.TIMESTAMPLTZ, _DType.DATETIME, *_WITHOUT_ZONE}
_CASTS: dict[Any, Callable[[Any], Any]] = {
    _DType.DATE: _date,
    _DType.DOUBLE: float,
    _DType.FLOAT: float,
    _DType.DECIMAL: _decimal,
    _DType.TEXT: str,
    _DType.VARCHAR: str,
}
_OPERATORS: dict[Any, Callable[[Any, Any], Any]] = {
    exp.Add: operator.add,
    exp.Sub: operator.sub,
    exp.Mul: operator.mul,
    exp.Div: operator.truediv,
    exp.IntDiv: _whole_quotient,
    exp.Mod: _remainder,
}
# Order matters: a subclass stands before its base.
_EVALUATORS: dict[Any, Callable[[Evaluator, Any], Any]] = {
    exp.Paren: lambda self, node: self.value(node.this),
    exp.Placeholder: Evaluator.marker,
    exp.Literal: lambda self, node: _number(node),
    exp.Column: lambda self, node: _name(node),
    exp.RawString: lambda self, node: node.this,
    exp.Boolean: lambda self, node: bool(node.this),
    exp.Null: lambda self, node: None,
    exp.Neg: Evaluator.negative,
    exp.Cast: Evaluator.cast,
    exp.CurrentTimestamp: lambda self, node: self.moment_of_call,
    exp.CurrentDate: lambda self, node: self.moment_of_call.date(),
    exp.Interval: Evaluator.interval,
    exp.Concat: lambda self, node: "".join(_text(self.value(part)) for part in node.expressions),
    exp.Array: lambda self, node: [self.value(item) for item in node.expressions],
    exp.Map: Evaluator.mapping,
    exp.VarMap: Evaluator.mapping,
    exp.TsOrDsAdd: Evaluator.add_days,
    exp.Anonymous: Evaluator.function,
    exp.DPipe: Evaluator.arithmetic,
    exp.Add: Evaluator.arithmetic,
    exp.Sub: Evaluator.arithmetic,
    exp.Mul: Evaluator.arithmetic,
    exp.Div: Evaluator.arithmetic,
    exp.IntDiv: Evaluator.arithmetic,
    exp.Mod: Evaluator.arithmetic,
}
