"""The CALL grammar: `CALL [catalog.][system.]name(value, name => value, ...)` on sqlglot's Spark dialect."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ErrorLevel, ParseError, TokenError
from sqlglot.tokenizer_core import Token, TokenType

from iceberg_compact_sql.call.binding import Given
from iceberg_compact_sql.call.detect import called_name
from iceberg_compact_sql.call.literals import Evaluator, Reading, sql_literal, unquote
from iceberg_compact_sql.call.statements import without_line_comments
from iceberg_compact_sql.errors import CallSyntaxError

# What other dialects write between the name of an argument and its value.
_NOT_THE_ARROW = (TokenType.EQ, TokenType.COLON_EQ, TokenType.ARROW)


@dataclass(frozen=True)
class Call:
    """A CALL as written: the parts of its name, and its arguments with their places in the text."""

    parts: tuple[str, ...]
    arguments: tuple[Given, ...]

    @property
    def procedure(self) -> str:
        return self.parts[-1].lower()

    @property
    def catalog(self) -> str | None:
        return self.parts[0] if len(self.parts) == 3 else None


class Misplaced(Exception):
    """A sentence about a token; the parser's own errors carry no reliable position."""

    def __init__(self, message: str, token: Token | None) -> None:
        super().__init__(message)
        self.token = token


class _CallStatement(exp.Expression):
    arg_types = {"expressions": False}


class CallDialect(Spark):
    """Spark's SQL, where CALL is an ordinary word and strings are read as Spark 4.1 and later read them."""

    escapes = True

    class Tokenizer(Spark.Tokenizer):
        KEYWORDS = {word: kind for word, kind in Spark.Tokenizer.KEYWORDS.items() if word != "CALL"}
        STRING_ESCAPES = [*Spark.Tokenizer.STRING_ESCAPES, "'", '"']

    class Parser(Spark.Parser):  # type: ignore[valid-type,misc]
        PRIMARY_PARSERS = {
            **Spark.Parser.PRIMARY_PARSERS,
            # The text between the quotes is read by our own rules: sqlglot's differ for doubled quotes.
            TokenType.STRING: lambda self, token: exp.Literal(this=_string_value(self, token), is_string=True),
        }

        def _parse_statement(self) -> exp.Expression:
            return _CallStatement(expressions=self._parse_call_arguments())

        def _parse_call_arguments(self) -> list[exp.Expression]:
            if not self._match(TokenType.L_PAREN):
                raise Misplaced("expected ( after the procedure's name", self._curr or None)
            arguments: list[exp.Expression] = []
            if not self._match(TokenType.R_PAREN):
                while True:
                    arguments.append(self._parse_call_argument())
                    if self._match(TokenType.COMMA):
                        continue
                    if self._match(TokenType.R_PAREN):
                        break
                    raise Misplaced("expected , or )", self._curr or None)
            if self._curr:
                raise Misplaced("unexpected text after the closing )", self._curr or None)
            return arguments

        def _parse_call_argument(self) -> exp.Expression:
            start, name = self._curr, None
            following = self._next.token_type if self._next else None
            if not start:
                raise Misplaced("expected an argument", None)
            if following == TokenType.FARROW:
                name = start.text
                self._advance(2)
            elif following in _NOT_THE_ARROW and start.token_type != TokenType.STRING:
                written = f"{start.text} {self._next.text} value"
                raise Misplaced(f"named arguments are written {start.text} => value, not {written}", self._next)
            if not self._curr or self._curr.token_type in (TokenType.COMMA, TokenType.R_PAREN):
                raise Misplaced(f"expected a value{f' for argument {name}' if name else ''}", self._curr or None)
            try:
                value = self._parse_disjunction()
            except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
                # sqlglot's builders of known functions take the number and kind of their arguments for granted.
                raise Misplaced("a value that cannot be read", start) from None
            if value is None:
                raise Misplaced("expected a value", self._curr or None)
            node = exp.Kwarg(this=exp.to_identifier(name, quoted=True), expression=value) if name else value
            node.meta["start"] = start.start
            return node


def parse_call(
    sql: str,
    *,
    args: Mapping[str, Any] | Sequence[Any] | None = None,
    now_ms: int = 0,
    time_zone: str = "UTC",
    reading: Reading | None = None,
) -> Call | None:
    """The call in a statement, or None when the text is no CALL.

    Raises CallSyntaxError, with line, column and a caret, when it is a CALL that cannot be read. Runs nothing.

    >>> call = parse_call("CALL compact_table('db.t', target => 512 * 1024 * 1024)")
    >>> call.procedure, [(a.name, a.value) for a in call.arguments]
    ('compact_table', [(None, 'db.t'), ('target', 536870912)])
    """
    name = called_name(sql)
    if name is None:
        return None
    try:
        reading = reading or Reading(time_zone)
        nodes = _argument_nodes(sql, name.end, reading)
        now = dt.datetime.fromtimestamp(now_ms / 1000, tz=dt.timezone.utc)
        return Call(name.parts, _arguments(sql, name.procedure, nodes, Evaluator(args, now, reading)))
    except Misplaced as error:
        offset = error.token.start if error.token else len(sql.rstrip())
        raise _syntax_error(sql, name.procedure, str(error), offset) from None
    except TokenError:
        raise _syntax_error(sql, name.procedure, "a quote or a comment is not closed", len(sql.rstrip())) from None
    except ParseError as error:
        detail = error.errors[0] if error.errors else {}
        offset = _offset_of(sql, detail.get("line"), detail.get("col"), detail.get("highlight"))
        raise _syntax_error(sql, name.procedure, str(detail.get("description", error)).rstrip("."), offset) from None
    except RecursionError:
        raise _syntax_error(sql, name.procedure, "is nested too deeply", name.end) from None


def print_call(call: Call) -> str:
    """SQL text that parses back to the same call."""
    parts = ".".join("`" + part.replace("`", "``") + "`" for part in call.parts)
    arguments = (
        (f"`{a.name.replace('`', '``')}` => " if a.name is not None else "") + sql_literal(a.value)
        for a in call.arguments
    )
    return f"CALL {parts}({', '.join(arguments)})"


def _argument_nodes(sql: str, start: int, reading: Reading) -> list[exp.Expression]:
    dialect = CallDialect()
    dialect.escapes = reading.escapes
    # What stands before the arguments is blanked, not cut: positions stay those of the statement.
    blanked = "".join(c if c == "\n" else " " for c in sql[:start]) + without_line_comments(sql, start)[start:]
    tokens = dialect.tokenize(blanked)
    while tokens and tokens[-1].token_type == TokenType.SEMICOLON:
        tokens.pop()
    for token in tokens:
        if token.token_type == TokenType.SEMICOLON:
            raise Misplaced("unexpected ; : one statement at a time", token)
    if not tokens:
        raise Misplaced("expected ( after the procedure's name", None)
    [statement] = dialect.parser(error_level=ErrorLevel.IMMEDIATE).parse(tokens, blanked)
    assert statement is not None
    return list(statement.expressions)


def _arguments(sql: str, procedure: str, nodes: list[exp.Expression], evaluator: Evaluator) -> tuple[Given, ...]:
    given: list[Given] = []
    for position, node in enumerate(nodes, start=1):
        named = isinstance(node, exp.Kwarg)
        name = node.this.name if named else None
        offset = node.meta["start"]
        if not named and given and given[-1].name is not None:
            raise _syntax_error(
                sql,
                procedure,
                f"argument {position} stands after a named argument",
                offset,
                hint="Positional ones go first.",
            )
        try:
            value = evaluator.value(node.expression if named else node)
        except (ValueError, OverflowError, ArithmeticError) as error:
            raise _syntax_error(sql, procedure, f"argument {name or position}: {error}", offset) from None
        line, column = line_and_column(sql, offset)
        given.append(Given(value, name, line, column))
    return tuple(given)


def line_and_column(sql: str, offset: int) -> tuple[int, int]:
    """Both from 1, as editors count."""
    return sql.count("\n", 0, offset) + 1, offset - (sql.rfind("\n", 0, offset) + 1) + 1


def _string_value(parser: Any, token: Token) -> str:
    raw = parser.sql[token.start : token.end + 1]
    try:
        return unquote(raw) if parser.dialect.escapes else raw[1:-1]
    except ValueError as error:
        raise Misplaced(f"string {token.text!r} {error}", token) from None


def _offset_of(sql: str, line: int | None, column: int | None, highlight: str | None) -> int:
    """sqlglot reports the line and the column of a token's end; this is the offset of its start."""
    if not line:
        return len(sql.rstrip())
    start = 0
    for _ in range(line - 1):
        start = sql.find("\n", start) + 1
    return max(start, start + (column or 1) - len(highlight or " "))


def _syntax_error(sql: str, procedure: str, message: str, offset: int, hint: str | None = None) -> CallSyntaxError:
    offset = min(max(offset, 0), len(sql))
    line, column = line_and_column(sql, offset)
    text = sql[offset - column + 1 :].split("\n", 1)[0].rstrip("\r")
    window = max(0, column - 61)
    return CallSyntaxError(
        message,
        procedure=procedure,
        line=line,
        column=column,
        hint=hint,
        excerpt=f"{text[window : window + 120]}\n{' ' * (column - 1 - window)}^",
    )
