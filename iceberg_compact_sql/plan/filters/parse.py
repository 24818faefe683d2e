"""Parse the text of `where` to a pyiceberg expression. It selects files, never rows; only known SQL is allowed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import localcontext
from typing import Any

from pyiceberg.expressions import AlwaysFalse, AlwaysTrue, And, BooleanExpression, Or
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BooleanType,
    DoubleType,
    FloatType,
    IcebergType,
    StringType,
)
from sqlglot import exp
from sqlglot.errors import ParseError, SqlglotError

from iceberg_compact_sql.call.grammar import CallDialect, UnexpectedToken
from iceberg_compact_sql.errors import InvalidArgumentError, did_you_mean
from iceberg_compact_sql.garbage_collector import garbage_collector_off
from iceberg_compact_sql.plan.filters.columns import find_column
from iceberg_compact_sql.plan.filters.comparisons import MIRRORED, NEGATED, Unusable, compare, compare_in
from iceberg_compact_sql.plan.filters.constant_conditions import holds
from iceberg_compact_sql.plan.filters.constants import constant_of, is_constant, refuse_unknown_parts
from iceberg_compact_sql.plan.filters.functions import Function, called_function, compare_function, read_width
from iceberg_compact_sql.plan.filters.long_lists import ShortenedFilter
from iceberg_compact_sql.plan.filters.predicates import (
    all_of,
    any_of,
    compared,
    is_nan,
    is_null,
    not_nan,
    not_null,
)
from iceberg_compact_sql.plan.filters.translation import cannot_use
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
    "Use comparisons, IN, BETWEEN, IS NULL, LIKE 'prefix%', AND, OR and NOT over columns and constants, and years(), "
    "months(), days(), hours(), bucket() or truncate() of a column."
)
_MOST_COLUMNS_LISTED = 40


def parse_where(
    text: str, schema: Schema, *, time_zone: str, now_ms: int | None = None, case_sensitive: bool = False
) -> BooleanExpression:
    """Parse a filter in Spark's SQL over the columns of `schema`.

    Every file with a row for which the filter is true matches the expression. SQL that is not on the allow-list is
    refused, with the reason, the position and the columns. No text is passed to a SQL engine. `now_ms` is the value of
    current_timestamp(), which is refused without it.
    """
    with localcontext(EXACT_DECIMALS), garbage_collector_off():
        return _Reader(text, schema, time_zone, now_ms, case_sensitive).read()


@dataclass(frozen=True, slots=True)
class _Term:
    """The column side of a comparison: a column, or a function of a column."""

    name: str
    type: IcebergType
    function: Function | None = None


class _Reader:
    def __init__(self, text: str, schema: Schema, time_zone: str, now_ms: int | None, case_sensitive: bool) -> None:
        self._text = text
        self._short = ShortenedFilter(text, time_zone)
        self._schema = schema
        self._time_zone = time_zone
        self._now_ms = now_ms
        self._case_sensitive = case_sensitive
        # A filter may name a column thousands of times.
        self._columns: dict[str, _Term] = {}

    def read(self) -> BooleanExpression:
        if not self._text.strip():
            raise self._error("it is empty", None, _ALLOWED)
        dialect = CallDialect()
        try:
            parsed: Any = dialect.parser().parse_into(
                exp.Condition, dialect.tokenize(self._short.text), self._short.text
            )
            if len(parsed) != 1 or parsed[0] is None:
                raise self._error("it is not one expression", None, _ALLOWED)
            if isinstance(parsed[0].unnest(), exp.Null):
                raise self._error("NULL is not a condition", parsed[0], _ALLOWED)
            return self._convert(parsed[0], negate=False)
        except ParseError as error:
            first = error.errors[0] if error.errors else {}
            near = f" near '{first.get('highlight')}'" if first.get("highlight") else ""
            line, column = first.get("line"), first.get("col")
            where = f" (line {line}, column {column} of the filter)" if line else ""
            raise self._error(f"it cannot be read{near}{where}", None, _ALLOWED) from error
        except (SqlglotError, UnexpectedToken, AttributeError, LookupError, TypeError) as error:
            # sqlglot's builders of known functions fail on an unexpected number or kind of arguments.
            raise self._error("it cannot be read", None, _ALLOWED) from error
        except (ArithmeticError, ValueError) as error:
            # Numbers of thousands of digits, and timestamps that are out of range in the session's zone.
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
            parts = [self._convert(part, negate=negate) for part in _operands(node)]
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
        raise self._unsupported("this cannot be used in a filter", node)

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
            exp.Anonymous: self._null_function,
            # Neither NULL nor NOT NULL is true.
            exp.Null: lambda node, negate: AlwaysFalse(),
        }

    def _comparison(self, node: exp.Expression, operator: str, negate: bool) -> BooleanExpression:
        left, right = node.this, node.expression
        operator = NEGATED[operator] if negate else operator
        if not is_constant(right) and is_constant(left):
            left, right, operator = right, left, MIRRORED[operator]
        if is_constant(left):
            return self._always(holds(self._constant(left), operator, self._constant(right), self._time_zone))
        if not is_constant(right):
            return self._same_column(node, operator)
        if isinstance(left.unnest(), exp.Predicate | exp.Connector | exp.Not) and operator in ("=", "!="):
            return self._truth(left, operator, self._constant(right))
        return self._compare(self._term(left), operator, self._constant(right))

    def _same_column(self, node: exp.Expression, operator: str) -> BooleanExpression:
        """`a = a` is true for every value of `a`; a comparison of two columns is refused."""
        columns = [side for side in (node.this, node.expression) if isinstance(side, exp.Column)]
        terms = [self._term(column) for column in columns]
        if len(terms) < 2 or terms[0] != terms[1]:
            raise self._unsupported("one side of a comparison must be a constant", node)
        term = terms[0]
        return not_null(term.name) if operator in ("=", "<=", ">=") else AlwaysFalse()

    def _truth(self, condition: exp.Expression, operator: str, wanted: Any) -> BooleanExpression:
        """Convert `(condition) = true`, `= false`, `!= true` or `!= false`."""
        if wanted is None:
            return AlwaysFalse()
        if not isinstance(wanted, bool):
            raise Unusable("a condition can be compared with true and false only")
        return self._convert(condition, negate=wanted is not (operator == "="))

    def _always(self, truth: bool) -> BooleanExpression:
        return AlwaysTrue() if truth else AlwaysFalse()

    def _constant(self, node: exp.Expression) -> Any:
        return constant_of(node, self._time_zone, self._now_ms)

    def _compare(self, term: _Term, operator: str, value: Any) -> BooleanExpression:
        if term.function is None:
            return compare(term.name, term.type, operator, value, self._time_zone)
        return compare_function(term.function, term.name, term.type, operator, value, self._time_zone)

    def _null_safe(self, node: exp.NullSafeEQ, negate: bool) -> BooleanExpression:
        left, right = node.this, node.expression
        if not is_constant(right) and is_constant(left):
            left, right = right, left
        value = self._constant(right)
        if is_constant(left):
            other = self._constant(left)
            same = other is value if None in (other, value) else holds(other, "=", value, self._time_zone)
            return self._always(same is not negate)
        term = self._term(left)
        if value is None:
            return not_null(term.name) if negate else is_null(term.name)
        comparison = self._compare(term, "!=" if negate else "=", value)
        return Or(comparison, is_null(term.name)) if negate else comparison

    def _in(self, node: exp.In, negate: bool) -> BooleanExpression:
        values = self._list_values(node.expressions)
        if not values:
            raise Unusable("IN needs a list of constants")
        if not is_constant(node.this):
            term = self._term(node.this)
            if term.function is None:
                return compare_in(term.name, term.type, values, negate, self._time_zone)
            parts = [self._compare(term, "!=" if negate else "=", value) for value in dict.fromkeys(values)]
        else:
            left, operator = self._constant(node.this), "!=" if negate else "="
            parts = [self._always(holds(left, operator, value, self._time_zone)) for value in values]
        return all_of(parts) if negate else any_of(parts)

    def _list_values(self, items: list[exp.Expression]) -> list[Any]:
        long_list = (
            self._short.values(items[0].name) if len(items) == 1 and isinstance(items[0], exp.Placeholder) else None
        )
        return [self._constant(item) for item in items] if long_list is None else list(long_list)

    def _between(self, node: exp.Between, negate: bool) -> BooleanExpression:
        low, high = self._constant(node.args["low"]), self._constant(node.args["high"])
        if is_constant(node.this):
            left = self._constant(node.this)
            bounds = (("<", low), (">", high)) if negate else ((">=", low), ("<=", high))
            met = [holds(left, operator, bound, self._time_zone) for operator, bound in bounds]
            return self._always(any(met) if negate else all(met))
        term = self._term(node.this)
        if negate:
            return Or(self._compare(term, "<", low), self._compare(term, ">", high))
        return And(self._compare(term, ">=", low), self._compare(term, "<=", high))

    def _is(self, node: exp.Is, negate: bool) -> BooleanExpression:
        if is_constant(node.this) and isinstance(node.expression, exp.Null):
            return self._always((self._constant(node.this) is None) is not negate)
        term = self._term(node.this)
        if term.function is not None or isinstance(node.expression, exp.Null):
            if not isinstance(node.expression, exp.Null):
                raise Unusable("IS takes NULL, TRUE or FALSE")
            return not_null(term.name) if negate else is_null(term.name)
        if isinstance(node.expression, exp.Boolean) and isinstance(term.type, BooleanType):
            wanted = bool(node.expression.this)
            if negate:
                # `IS NOT TRUE` is also true for null.
                return Or(compare(term.name, term.type, "!=", wanted, self._time_zone), is_null(term.name))
            return compare(term.name, term.type, "=", wanted, self._time_zone)
        raise Unusable("IS takes NULL, or TRUE and FALSE for a boolean column")

    def _null_function(self, node: exp.Anonymous, negate: bool) -> BooleanExpression:
        """`isnull(column)` and `isnotnull(column)`."""
        name = node.name.lower()
        if name not in ("isnull", "isnotnull") or len(node.expressions) != 1:
            raise self._unsupported("this cannot be used in a filter", node)
        term = self._term(node.expressions[0])
        return is_null(term.name) if (name == "isnull") is not negate else not_null(term.name)

    def _like(self, node: exp.Like, negate: bool) -> BooleanExpression:
        negate = negate is not bool(node.args.get("negate"))
        pattern = self._constant(node.expression)
        term = self._text_term(node.this)
        if not isinstance(pattern, str):
            raise Unusable("LIKE takes a string")
        prefix = pattern.rstrip("%")
        if any(special in prefix for special in "%_\\"):
            raise self._unsupported(f"LIKE '{pattern}' is not a plain prefix such as 'abc%'", node)
        if prefix == pattern:
            return compare(term.name, term.type, "!=" if negate else "=", pattern, self._time_zone)
        return self._prefix(term, prefix, negate)

    def _starts_with(self, node: exp.StartsWith, negate: bool) -> BooleanExpression:
        prefix = self._constant(node.expression)
        if not isinstance(prefix, str):
            raise Unusable("startswith takes a string")
        return self._prefix(self._text_term(node.this), prefix, negate)

    def _prefix(self, term: _Term, prefix: str, negate: bool) -> BooleanExpression:
        if not prefix:
            return AlwaysFalse() if negate else not_null(term.name)
        return compared(term.name, "not starts with" if negate else "starts with", prefix)

    def _is_nan(self, node: exp.IsNan, negate: bool) -> BooleanExpression:
        term = self._term(node.this)
        if term.function is not None or not isinstance(term.type, (FloatType, DoubleType)):
            raise Unusable(f"isnan takes a float or double column, {term.name} is of type {term.type}")
        return not_nan(term.name) if negate else is_nan(term.name)

    def _boolean(self, node: exp.Boolean, negate: bool) -> BooleanExpression:
        return AlwaysTrue() if bool(node.this) is not negate else AlwaysFalse()

    def _text_term(self, node: exp.Expression) -> _Term:
        term = self._term(node)
        if term.function is not None:
            raise Unusable(f"a prefix needs a string column, not {term.function.name}() of one")
        if not isinstance(term.type, StringType):
            raise Unusable(f"a prefix needs a string column, and {term.name} is of type {term.type}")
        return term

    def _term(self, node: exp.Expression) -> _Term:
        """Read a column, or a function of a column."""
        refuse_unknown_parts(node)
        if isinstance(node, exp.Paren):
            return self._term(node.this)
        call = called_function(node)
        if call is None and isinstance(node, (exp.Column, exp.Dot)):
            return self._column(node)
        if call is None or not isinstance(call.column, (exp.Column, exp.Dot)):
            raise self._unsupported("this is neither a column nor a function of one that can be used here", node)
        column = self._column(call.column)
        width = None if call.width is None else read_width(call.name, self._constant(call.width))
        function = Function(call.name, width, call.qualified)
        function.check_type(column.name, column.type)
        return _Term(column.name, column.type, function)

    def _column(self, node: exp.Expression) -> _Term:
        if isinstance(node, exp.Dot) and not isinstance(node.expression, exp.Identifier):
            raise self._error("this is not a column", node, _ALLOWED)
        name = ".".join(part.name for part in node.parts)  # type: ignore[attr-defined]
        if name not in self._columns:
            column = find_column(self._schema, name, case_sensitive=self._case_sensitive)
            if column is None:
                raise self._error(f"there is no column '{name}'", node)
            self._columns[name] = _Term(*column)
        return self._columns[name]

    def _unsupported(self, reason: str, node: exp.Expression) -> InvalidArgumentError:
        """The error for an expression that Spark accepts; Iceberg has its own messages for these."""
        error = self._error(reason, node, _ALLOWED)
        error.iceberg = cannot_use(self._text, node)
        return error

    def _error(self, reason: str, node: exp.Expression | None, hint: str | None = None) -> InvalidArgumentError:
        position = ""
        if node is not None:
            starts = [part.meta["start"] for part in node.walk() if "start" in part.meta]
            if starts:
                before = self._text[: self._short.original_offset(min(starts))]
                line, column = before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1
                position = f", at line {line}, column {column} of the filter: {node.sql(dialect='spark')}"
        names = [f"{field.name} {field.field_type}" for field in self._schema.fields]
        more = f" and {len(names) - _MOST_COLUMNS_LISTED} more" if len(names) > _MOST_COLUMNS_LISTED else ""
        listed = f"Columns: {', '.join(names[:_MOST_COLUMNS_LISTED])}{more}."
        suggestion = None
        if node is not None and isinstance(node, exp.Column):
            suggestion = did_you_mean(node.name, [field.name for field in self._schema.fields])
        hints = " ".join(part for part in (suggestion, hint, listed) if part)
        return InvalidArgumentError(
            f"where is refused: {reason}{position}", argument="where", value=self._text, hint=hints
        )


def _operands(node: exp.Expression) -> list[exp.Expression]:
    """The operands of a chain of AND or of OR, without recursion: a chain may be long."""
    kind, operands, waiting = type(node), [], [node]
    while waiting:
        current = waiting.pop()
        while isinstance(current, exp.Paren) and isinstance(current.this, kind):
            current = current.this
        if isinstance(current, kind):
            waiting += [current.expression, current.this]
        else:
            operands.append(current)
    return operands
