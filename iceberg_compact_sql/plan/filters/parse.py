"""`where`: from text to an expression object over an allow-list; it chooses files, never rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import localcontext
from typing import Any

from pyiceberg.expressions import AlwaysFalse, AlwaysTrue, And, BooleanExpression, Or
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BooleanType,
    DateType,
    DoubleType,
    FloatType,
    IcebergType,
    PrimitiveType,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)
from sqlglot import exp
from sqlglot.errors import ParseError, SqlglotError

from iceberg_compact_sql.call.grammar import CallDialect, Misplaced
from iceberg_compact_sql.errors import InvalidArgumentError, did_you_mean
from iceberg_compact_sql.plan.filters.comparisons import MIRRORED, NEGATED, Unusable, compare, one_of, within
from iceberg_compact_sql.plan.filters.constants import constant_of, is_constant, refuse_unknown_parts
from iceberg_compact_sql.plan.filters.predicates import (
    all_of,
    any_of,
    compared,
    is_nan,
    is_null,
    not_nan,
    not_null,
)
from iceberg_compact_sql.plan.filters.spans import SPANS, span_of
from iceberg_compact_sql.units import EXACT_DECIMALS

_COMPARISONS: dict[type, str] = {
    exp.EQ: "=",
    exp.NEQ: "!=",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
}
_ALLOWED = (
    "Use comparisons, IN, BETWEEN, IS NULL, LIKE 'prefix%', AND, OR and NOT over columns and constants, and days(), "
    "months(), years() or hours() of a column."
)
_MOST_COLUMNS_LISTED = 40


def parse_where(
    text: str, schema: Schema, *, time_zone: str, now_ms: int | None = None, case_sensitive: bool = False
) -> BooleanExpression:
    """The expression of a filter in Spark's SQL over the columns of `schema`.

    Every file that holds a row for which the filter is true may match the expression. Anything outside the allow-list
    is refused, with the reason, the place and the columns; no text is ever handed on to a SQL engine. `now_ms` is what
    current_timestamp() means; without it that is refused.
    """
    with localcontext(EXACT_DECIMALS):
        return _Reader(text, schema, time_zone, now_ms, case_sensitive).read()


@dataclass(frozen=True, slots=True)
class _Term:
    """What stands on the column's side of a comparison: a column, or a span of time that a column falls into."""

    name: str
    type: IcebergType
    span: str | None = None


class _Reader:
    def __init__(self, text: str, schema: Schema, time_zone: str, now_ms: int | None, case_sensitive: bool) -> None:
        self._text = text
        self._schema = schema
        self._time_zone = time_zone
        self._now_ms = now_ms
        self._case_sensitive = case_sensitive

    def read(self) -> BooleanExpression:
        if not self._text.strip():
            raise self._error("it is empty", None, _ALLOWED)
        dialect = CallDialect()
        try:
            parsed: Any = dialect.parser().parse_into(exp.Condition, dialect.tokenize(self._text), self._text)
            if len(parsed) != 1 or parsed[0] is None:
                raise self._error("it is not one expression", None, _ALLOWED)
            return self._convert(parsed[0], negate=False)
        except ParseError as error:
            first = error.errors[0] if error.errors else {}
            place = f" near '{first.get('highlight')}'" if first.get("highlight") else ""
            line, column = first.get("line"), first.get("col")
            where = f" (line {line}, column {column} of the filter)" if line else ""
            raise self._error(f"it cannot be read{place}{where}", None, _ALLOWED) from error
        except (SqlglotError, Misplaced, AttributeError, LookupError, TypeError) as error:
            # sqlglot's builders of known functions take the number and kind of their arguments for granted.
            raise self._error("it cannot be read", None, _ALLOWED) from error
        except (ArithmeticError, ValueError) as error:
            # Numbers of thousands of digits, and moments that no calendar holds in the session's zone.
            raise self._error("it holds a value that is out of range", None, _ALLOWED) from error
        except RecursionError as error:
            raise self._error("it is nested too deeply", None, "Use IN for long lists.") from error

    def _convert(self, node: exp.Expression, *, negate: bool) -> BooleanExpression:
        try:
            return self._condition(node, negate)
        except Unusable as error:
            raise self._error(str(error), node) from error

    def _condition(self, node: exp.Expression, negate: bool) -> BooleanExpression:
        refuse_unknown_parts(node)
        if isinstance(node, exp.Paren):
            return self._convert(node.this, negate=negate)
        if isinstance(node, exp.Not):
            return self._convert(node.this, negate=not negate)
        if isinstance(node, (exp.And, exp.Or)):
            parts = [self._convert(part, negate=negate) for part in _flat(node)]
            return all_of(parts) if isinstance(node, exp.And) is not negate else any_of(parts)
        if type(node) in _COMPARISONS:
            return self._comparison(node, _COMPARISONS[type(node)], negate)
        reader = self._readers().get(type(node))
        if reader is not None:
            return reader(node, negate)
        if isinstance(node, exp.Column):
            term = self._term(node)
            if not isinstance(term.type, BooleanType):
                raise Unusable(f"{term.name} is of type {term.type}, not a condition")
            return compare(term.name, term.type, "!=" if negate else "=", True, self._time_zone)
        raise self._error("this cannot be used in a filter", node, _ALLOWED)

    def _readers(self) -> dict[type, Callable[[Any, bool], BooleanExpression]]:
        return {
            exp.NullSafeEQ: self._null_safe,
            exp.In: self._in,
            exp.Between: self._between,
            exp.Is: self._is,
            exp.Like: self._like,
            exp.StartsWith: self._starts_with,
            exp.IsNan: self._is_nan,
            exp.Boolean: self._boolean,
        }

    def _comparison(self, node: exp.Expression, operator: str, negate: bool) -> BooleanExpression:
        left, right = node.this, node.expression
        if not is_constant(right) and is_constant(left):
            left, right, operator = right, left, MIRRORED[operator]
        if not is_constant(right):
            raise Unusable("one side of a comparison must be a constant")
        return self._compare(self._term(left), NEGATED[operator] if negate else operator, self._constant(right))

    def _constant(self, node: exp.Expression) -> Any:
        return constant_of(node, self._time_zone, self._now_ms)

    def _compare(self, term: _Term, operator: str, value: Any) -> BooleanExpression:
        if term.span is None:
            return compare(term.name, term.type, operator, value, self._time_zone)
        start, end = span_of(term.span, value, term.type, self._time_zone)
        return within(term.name, term.type, operator, start, end, self._time_zone)

    def _null_safe(self, node: exp.NullSafeEQ, negate: bool) -> BooleanExpression:
        left, right = node.this, node.expression
        if isinstance(left, exp.Null) or (not is_constant(right) and is_constant(left)):
            left, right = right, left
        term = self._term(left)
        if isinstance(right, exp.Null):
            return not_null(term.name) if negate else is_null(term.name)
        found = self._compare(term, "!=" if negate else "=", self._constant(right))
        return Or(found, is_null(term.name)) if negate else found

    def _in(self, node: exp.In, negate: bool) -> BooleanExpression:
        term = self._term(node.this)
        values = [self._constant(item) for item in node.expressions]
        if not values:
            raise Unusable("IN needs a list of constants")
        if term.span is None:
            return one_of(term.name, term.type, values, negate, self._time_zone)
        parts = [self._compare(term, "!=" if negate else "=", value) for value in values]
        return all_of(parts) if negate else any_of(parts)

    def _between(self, node: exp.Between, negate: bool) -> BooleanExpression:
        term = self._term(node.this)
        low, high = self._constant(node.args["low"]), self._constant(node.args["high"])
        if negate:
            return Or(self._compare(term, "<", low), self._compare(term, ">", high))
        return And(self._compare(term, ">=", low), self._compare(term, "<=", high))

    def _is(self, node: exp.Is, negate: bool) -> BooleanExpression:
        term = self._term(node.this)
        if term.span is not None or isinstance(node.expression, exp.Null):
            if not isinstance(node.expression, exp.Null):
                raise Unusable("IS takes NULL, TRUE or FALSE")
            return not_null(term.name) if negate else is_null(term.name)
        if isinstance(node.expression, exp.Boolean) and isinstance(term.type, BooleanType):
            wanted = bool(node.expression.this)
            if negate:
                # `IS NOT TRUE` is also true of null.
                return Or(compare(term.name, term.type, "!=", wanted, self._time_zone), is_null(term.name))
            return compare(term.name, term.type, "=", wanted, self._time_zone)
        raise Unusable("IS takes NULL, or TRUE and FALSE for a boolean column")

    def _like(self, node: exp.Like, negate: bool) -> BooleanExpression:
        negate = negate is not bool(node.args.get("negate"))
        pattern = self._constant(node.expression)
        term = self._text_term(node.this)
        if not isinstance(pattern, str):
            raise Unusable("LIKE takes text")
        prefix = pattern.rstrip("%")
        if any(special in prefix for special in "%_\\"):
            raise Unusable(f"LIKE '{pattern}' is not a plain prefix such as 'abc%'")
        if prefix == pattern:
            return compare(term.name, term.type, "!=" if negate else "=", pattern, self._time_zone)
        return self._prefix(term, prefix, negate)

    def _starts_with(self, node: exp.StartsWith, negate: bool) -> BooleanExpression:
        prefix = self._constant(node.expression)
        if not isinstance(prefix, str):
            raise Unusable("startswith takes text")
        return self._prefix(self._text_term(node.this), prefix, negate)

    def _prefix(self, term: _Term, prefix: str, negate: bool) -> BooleanExpression:
        if not prefix:
            return AlwaysFalse() if negate else not_null(term.name)
        return compared(term.name, "not starts with" if negate else "starts with", prefix)

    def _is_nan(self, node: exp.IsNan, negate: bool) -> BooleanExpression:
        term = self._term(node.this)
        if term.span is not None or not isinstance(term.type, (FloatType, DoubleType)):
            raise Unusable(f"isnan takes a float or double column, {term.name} is of type {term.type}")
        return not_nan(term.name) if negate else is_nan(term.name)

    def _boolean(self, node: exp.Boolean, negate: bool) -> BooleanExpression:
        return AlwaysTrue() if bool(node.this) is not negate else AlwaysFalse()

    def _text_term(self, node: exp.Expression) -> _Term:
        term = self._term(node)
        if term.span is not None or not isinstance(term.type, StringType):
            raise Unusable(f"{term.name} is of type {term.type}, and a prefix is of text")
        return term

    def _term(self, node: exp.Expression) -> _Term:
        """A column, or a time function of one."""
        refuse_unknown_parts(node)
        if isinstance(node, exp.Paren):
            return self._term(node.this)
        if isinstance(node, (exp.Column, exp.Dot)):
            return self._column(node)
        inner, span = None, None
        if isinstance(node, exp.Anonymous) and str(node.this).lower() in SPANS and len(node.expressions) == 1:
            inner, span = node.expressions[0], str(node.this).lower()
        elif isinstance(node, exp.TsOrDsToDate) or (
            isinstance(node, (exp.Cast, exp.TryCast)) and node.to.this == exp.DataType.Type.DATE
        ):
            inner, span = node.this, "date"
        if inner is None or not isinstance(inner, (exp.Column, exp.Dot)):
            raise self._error("this is neither a column nor a time function of one", node, _ALLOWED)
        column = self._column(inner)
        if not isinstance(column.type, (DateType, TimestampType, TimestamptzType)):
            raise Unusable(f"{column.name} is of type {column.type}, not a date or a timestamp")
        if isinstance(column.type, DateType) and span == "hours":
            raise Unusable(f"{column.name} is a date and has no hours")
        return _Term(column.name, column.type, span)

    def _column(self, node: exp.Expression) -> _Term:
        parts = [part.name for part in node.parts]  # type: ignore[attr-defined]
        name = ".".join(parts)
        try:
            field = self._schema.find_field(name, case_sensitive=self._case_sensitive)
        except ValueError:
            raise self._error(f"there is no column '{name}'", node) from None
        full = self._schema.find_column_name(field.field_id)
        if full is None or not self._reached_by_structs(full):
            raise Unusable(f"{name} is inside a list or a map")
        if not isinstance(field.field_type, PrimitiveType):
            raise Unusable(f"{name} is of type {field.field_type}; name a field inside it")
        return _Term(full, field.field_type)

    def _reached_by_structs(self, full: str) -> bool:
        above = full
        while "." in above:
            above = above.rpartition(".")[0]
            try:
                if not isinstance(self._schema.find_type(above), StructType):
                    return False
            except ValueError:
                # A dot inside a name, not a level.
                continue
        return True

    def _error(self, reason: str, node: exp.Expression | None, hint: str | None = None) -> InvalidArgumentError:
        place = ""
        if node is not None:
            starts = [part.meta["start"] for part in node.walk() if "start" in part.meta]
            if starts:
                before = self._text[: min(starts)]
                line, column = before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1
                place = f", at line {line}, column {column} of the filter: {node.sql(dialect='spark')}"
        names = [f"{field.name} {field.field_type}" for field in self._schema.fields]
        more = f" and {len(names) - _MOST_COLUMNS_LISTED} more" if len(names) > _MOST_COLUMNS_LISTED else ""
        listed = f"Columns: {', '.join(names[:_MOST_COLUMNS_LISTED])}{more}."
        meant = None
        if node is not None and isinstance(node, exp.Column):
            meant = did_you_mean(node.name, [field.name for field in self._schema.fields])
        hints = " ".join(part for part in (meant, hint, listed) if part)
        return InvalidArgumentError(
            f"where is refused: {reason}{place}", argument="where", value=self._text, hint=hints
        )


def _flat(node: exp.Expression) -> list[exp.Expression]:
    """The operands of a chain of the same connective, without recursion: chains may be long."""
    kind, found, waiting = type(node), [], [node]
    while waiting:
        current = waiting.pop()
        while isinstance(current, exp.Paren) and isinstance(current.this, kind):
            current = current.this
        if isinstance(current, kind):
            waiting += [current.expression, current.this]
        else:
            found.append(current)
    return found
