"""Evaluate constant SQL expressions to Python values, and write Python values as SQL text."""

from __future__ import annotations

import datetime as dt
import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, DecimalException, localcontext
from typing import Any

from sqlglot import exp

from iceberg_compact_sql.call.casts import EXACT, MAX_DIGITS, cast, check_digits, date_of, text_of
from iceberg_compact_sql.units import Months, on_same_offset, parse_interval, plain_python, whole_part, zone

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
_SPAN_UNITS = ("day", "hour", "minute", "second")
_DIGITS = {"hour": "2[0-3]|[01]?[0-9]", "minute": "[0-5]?[0-9]", "second": "[0-5]?[0-9]", "month": "1[01]|0?[0-9]"}


def _span_pattern(units: tuple[str, ...]) -> re.Pattern[str]:
    first, *others = units
    parts = [rf"([+-])?(?P<{first}>[0-9]{{1,10}})"]
    for unit in others:
        before = "-" if unit == "month" else r"\s+" if unit == "hour" else ":"
        parts.append(f"{before}(?P<{unit}>{_DIGITS[unit]})")
    return re.compile("".join(parts) + (r"(?:\.(?P<fraction>[0-9]{1,9}))?" if units[-1] == "second" else ""))


_SPANS = {
    ("year", "month"): _span_pattern(("year", "month")),
    **{
        (_SPAN_UNITS[i], _SPAN_UNITS[j]): _span_pattern(_SPAN_UNITS[i : j + 1])
        for i in range(4)
        for j in range(i + 1, 4)
    },
}
EXPECTED = (
    "expected a constant: a string, number, true, false, NULL, DATE/TIMESTAMP '...', INTERVAL, array(...) or map(...)"
)


@dataclass(frozen=True)
class TextSettings:
    """Settings of a session that decide what SQL text means.

    `escapes`: a backslash begins an escape, and a doubled quote is one quote (false with
    spark.sql.parser.escapedStringLiterals). `zoneless`: TIMESTAMP means TIMESTAMP_NTZ (spark.sql.timestampType).
    """

    time_zone: str = "UTC"
    escapes: bool = True
    zoneless: bool = False


@dataclass
class Evaluator:
    """Evaluates constant expressions of one CALL; `parameters` are the values of the markers `:name` and `?`."""

    parameters: Mapping[str, Any] | Sequence[Any] | None
    now: dt.datetime
    settings: TextSettings
    _used: int = 0

    def value(self, node: Any) -> Any:
        """The value of a constant expression; ValueError with the reason when it is not constant."""
        for kind, evaluate in _EVALUATORS.items():
            if isinstance(node, kind):
                return evaluate(self, node)
        raise ValueError(EXPECTED)

    @property
    def current_timestamp(self) -> dt.datetime:
        """The time of the call in the session's time zone, in which Spark counts days and months."""
        return self.now.astimezone(zone(self.settings.time_zone))

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
            return self.current_timestamp
        return _refuse_function(node.name)

    def cast(self, node: exp.Cast) -> Any:
        value = self.value(node.this)
        return None if value is None else cast(node, value, self.settings.time_zone, zoneless=self.settings.zoneless)

    def arithmetic(self, node: exp.Binary) -> Any:
        left, right = self.value(node.this), self.value(node.expression)
        if left is None or right is None:
            return None
        if isinstance(node, exp.DPipe):
            return text_of(left) + text_of(right)
        if isinstance(left, Months) or isinstance(right, Months):
            return _add_months(type(node), left, right)
        if {type(left), type(right)} == {float, Decimal}:
            left, right = float(left), float(right)
        if any(isinstance(side, (bool, str, list, Mapping)) for side in (left, right)):
            raise ValueError(f"cannot calculate {node.sql('spark')}: the types do not fit")
        if isinstance(left, dt.date) and not isinstance(left, dt.datetime) and isinstance(right, (dt.timedelta, int)):
            # Spark: date +- day interval is a date; +- anything finer is a timestamp.
            days = dt.timedelta(days=right) if isinstance(right, int) else right
            if days % dt.timedelta(days=1):
                left = dt.datetime(left.year, left.month, left.day, tzinfo=zone(self.settings.time_zone))
            right = days
        if isinstance(right, dt.datetime) and isinstance(left, dt.timedelta) and isinstance(node, exp.Add):
            left, right = right, left
        if isinstance(left, dt.datetime) and isinstance(right, dt.timedelta) and isinstance(node, (exp.Add, exp.Sub)):
            return _add_interval(left, right if isinstance(node, exp.Add) else -right)
        try:
            with localcontext(EXACT):
                result = _OPERATORS[type(node)](left, right)
            return check_digits(result) if isinstance(result, Decimal) else result
        except (TypeError, ArithmeticError, DecimalException) as error:
            reason = (
                "division by zero"
                if isinstance(error, (ZeroDivisionError, DecimalException))
                else "the types do not fit"
            )
            raise ValueError(f"cannot calculate {node.sql('spark')}: {reason}") from None

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
                return parse_interval(amount)
            except ValueError as error:
                raise ValueError(f"INTERVAL '{amount}' {error}") from None
        if unit is None or amount is None:
            raise ValueError("an INTERVAL needs a number and a unit, such as INTERVAL 7 DAYS")
        if isinstance(unit, exp.IntervalSpan):
            return _read_span(str(amount), unit.this.name.lower(), unit.expression.name.lower())
        name = unit.name.lower().rstrip("s")
        try:
            number = Decimal(str(amount).strip())
        except DecimalException:
            raise ValueError(f"INTERVAL '{amount}' {unit.name}: '{amount}' is not a number") from None
        if name in ("month", "year", "quarter"):
            if number != whole_part(number):
                raise ValueError(f"INTERVAL {amount} {unit.name}: only whole months and years")
            return Months(whole_part(number) * {"month": 1, "quarter": 3, "year": 12}[name])
        if name not in _UNITS:
            raise ValueError(f"INTERVAL unit {unit.name} is not known; use {', '.join(_UNITS)}, month or year")
        return dt.timedelta(microseconds=whole_part(number * (_UNITS[name] // dt.timedelta(microseconds=1))))

    def add_days(self, node: exp.TsOrDsAdd) -> Any:
        start, days = self.value(node.this), self.value(node.expression)
        if isinstance(start, (dt.date, str)) and isinstance(days, int) and str(node.args.get("unit")).upper() == "DAY":
            return date_of(start, self.settings.time_zone) + dt.timedelta(days=days)
        raise ValueError(EXPECTED)

    def concat(self, node: exp.Concat) -> str | None:
        parts = [self.value(part) for part in node.expressions]
        return None if None in parts else "".join(map(text_of, parts))

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
    """The value of a quoted SQL string, by the rules of Spark 4.1 and later.

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
        # Two escapes may be the surrogates of one character, as in Java.
        return _ESCAPE.sub(replaced, raw[1:-1]).encode("utf-16", "surrogatepass").decode("utf-16")
    except (ValueError, OverflowError):
        raise ValueError("has an escape that is not a character") from None


def _plain(value: Any) -> Any:
    value = plain_python(value)
    if value is None or isinstance(value, (str, bool, int, float, Decimal, dt.date, dt.timedelta)):
        return value
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    raise ValueError(f"a marker's value of type {type(value).__name__} is not supported; pass a plain Python value")


def _literal_value(node: exp.Literal) -> Any:
    if node.is_string:
        return node.this
    text = str(node.this)
    if text.isdigit():
        return int(text)
    number = float(text) if "e" in text.lower() else check_digits(Decimal(text))
    if isinstance(number, float) and not math.isfinite(number):
        raise ValueError(f"{text} is beyond a double")
    return number


def _refuse_function(function: str) -> Any:
    raise ValueError(f"function {function}() is not evaluated here; {EXPECTED}")


def _refuse_name(node: exp.Column) -> Any:
    name = ".".join(part.name for part in node.parts)
    raise ValueError(f"{name} is a name, not a value; put it in quotes: '{name}'")


def _read_span(text: str, start: str, end: str) -> dt.timedelta | Months:
    """An interval between two units: '1 02:03:04' DAY TO SECOND, '02:03' HOUR TO MINUTE, '1-2' YEAR TO MONTH.

    The first number may have any number of digits; the others are less than one of the unit before them.
    """
    pattern = _SPANS.get((start, end))
    match = pattern.fullmatch(text.strip()) if pattern is not None else None
    if match is None:
        raise ValueError(f"INTERVAL '{text}' {start.upper()} TO {end.upper()} cannot be read")
    sign = -1 if match[1] == "-" else 1
    amounts = match.groupdict()
    if start == "year":
        return Months(sign * (12 * int(amounts["year"]) + int(amounts["month"])))
    fraction = (amounts.get("fraction") or "")[:6].ljust(6, "0")
    units = {f"{unit}s": int(amounts[unit]) for unit in ("day", "hour", "minute", "second") if unit in amounts}
    return sign * dt.timedelta(**units, microseconds=int(fraction))


def _add_interval(moment: dt.datetime, span: dt.timedelta) -> dt.datetime:
    """Add as Spark does: whole days in the local time of the zone, hours and smaller units in elapsed time."""
    days = dt.timedelta(days=abs(span).days * (1 if span > dt.timedelta(0) else -1))
    later = on_same_offset(moment, moment + days)
    if later.tzinfo is None:
        return later + (span - days)
    return (later.astimezone(dt.timezone.utc) + (span - days)).astimezone(later.tzinfo)


def _quotient(left: Any, right: Any) -> Any:
    """Divide as Spark does: whole numbers as doubles, decimals to the scale of Spark's result type."""
    if not isinstance(left, Decimal) and not isinstance(right, Decimal):
        return left / right
    if not all(isinstance(side, (int, Decimal)) for side in (left, right)):
        raise TypeError
    (_, scale), (precision, other) = _size(Decimal(left)), _size(Decimal(right))
    digits = max(6, scale + precision + 1)
    if _size(Decimal(left))[0] - scale + other + digits > MAX_DIGITS:
        raise ValueError("the quotient has too many digits; divide doubles, such as 1.5e0 / 3")
    return (Decimal(left) / Decimal(right)).quantize(Decimal(1).scaleb(-digits))


def _size(number: Decimal) -> tuple[int, int]:
    """Precision and scale of Spark's decimal literal with the same digits."""
    scale = max(0, -int(number.as_tuple().exponent))
    return max(len(number.as_tuple().digits), scale), scale


def _whole_quotient(left: Any, right: Any) -> Any:
    """Divide with DIV, which rounds towards zero, as in Java."""
    quotient = abs(left) // abs(right)
    return whole_part(quotient if (left < 0) == (right < 0) else -quotient)


def _remainder(left: Any, right: Any) -> Any:
    """The result of `%`, which has the sign of the left side, as in Java."""
    remainder = abs(left) % abs(right)
    return -remainder if left < 0 else remainder


def _add_months(kind: type, left: Any, right: Any) -> Any:
    if isinstance(left, dt.date) and isinstance(right, Months) and kind in (exp.Add, exp.Sub):
        return (right if kind is exp.Add else -right).added_to(left)
    if isinstance(right, dt.date) and isinstance(left, Months) and kind is exp.Add:
        return left.added_to(right)
    if isinstance(left, Months) and isinstance(right, Months) and kind in (exp.Add, exp.Sub):
        return Months(_OPERATORS[kind](left.count, right.count))
    raise ValueError("months and years have no fixed length; subtract them from a date or timestamp, or use days")


_OPERATORS: dict[Any, Callable[[Any, Any], Any]] = {
    exp.Add: operator.add,
    exp.Sub: operator.sub,
    exp.Mul: operator.mul,
    exp.Div: _quotient,
    exp.IntDiv: _whole_quotient,
    exp.Mod: _remainder,
}
# The first match wins: a subclass comes before its base class.
_EVALUATORS: dict[Any, Callable[[Evaluator, Any], Any]] = {
    exp.Paren: lambda self, node: self.value(node.this),
    exp.Placeholder: Evaluator.marker,
    exp.Literal: lambda self, node: _literal_value(node),
    exp.Column: lambda self, node: _refuse_name(node),
    exp.RawString: lambda self, node: node.this,
    exp.Boolean: lambda self, node: bool(node.this),
    exp.Null: lambda self, node: None,
    exp.Neg: Evaluator.negative,
    exp.Cast: Evaluator.cast,
    exp.CurrentTimestamp: lambda self, node: self.current_timestamp,
    exp.CurrentDate: lambda self, node: self.current_timestamp.date(),
    exp.Interval: Evaluator.interval,
    exp.ConcatWs: lambda self, node: _refuse_function("concat_ws"),
    exp.Concat: Evaluator.concat,
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
