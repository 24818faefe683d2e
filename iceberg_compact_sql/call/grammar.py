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

from iceberg_compact_sql.call import iceberg_errors
from iceberg_compact_sql.call.binding import GivenArgument
from iceberg_compact_sql.call.detect import called_name
from iceberg_compact_sql.call.literals import Evaluator, TextSettings, unquote
from iceberg_compact_sql.call.statements import without_line_comments
from iceberg_compact_sql.errors import CallSyntaxError, IcebergError

# Tokens that other dialects use between the name of an argument and its value.
_OTHER_ARROWS = (TokenType.EQ, TokenType.COLON_EQ, TokenType.ARROW)


@dataclass(frozen=True)
class Call:
    """A parsed CALL: the parts of its name, and its arguments with their positions in the text."""

    parts: tuple[str, ...]
    arguments: tuple[GivenArgument, ...]

    @property
    def procedure(self) -> str:
        return self.parts[-1].lower()

    @property
    def qualified(self) -> bool:
        """Whether the name is `system.name` or `catalog.system.name`."""
        return len(self.parts) > 1

    @property
    def catalog(self) -> str | None:
        return self.parts[0] if len(self.parts) == 3 else None


class UnexpectedToken(Exception):
    """A syntax error at a token; sqlglot's own errors have no reliable position."""

    def __init__(self, message: str, token: Token | None) -> None:
        super().__init__(message)
        self.token = token


class _CallStatement(exp.Expression):
    arg_types = {"expressions": False}


class CallDialect(Spark):
    """Spark's SQL dialect, with CALL as an ordinary word and string literals as in Spark 4.1 and later."""

    escapes = True

    class Tokenizer(Spark.Tokenizer):
        KEYWORDS = {word: kind for word, kind in Spark.Tokenizer.KEYWORDS.items() if word != "CALL"}
        STRING_ESCAPES = [*Spark.Tokenizer.STRING_ESCAPES, "'", '"']

    class Parser(Spark.Parser):  # type: ignore[valid-type,misc]
        PRIMARY_PARSERS = {
            **Spark.Parser.PRIMARY_PARSERS,
            # Our own function reads the text between the quotes: sqlglot treats doubled quotes differently.
            TokenType.STRING: lambda self, token: exp.Literal(this=_string_value(self, token), is_string=True),
        }

        def _parse_statement(self) -> exp.Expression:
            return _CallStatement(expressions=self._parse_call_arguments())

        def _parse_call_arguments(self) -> list[exp.Expression]:
            if not self._match(TokenType.L_PAREN):
                raise UnexpectedToken("expected ( after the procedure's name", self._curr or None)
            arguments: list[exp.Expression] = []
            if not self._match(TokenType.R_PAREN):
                while True:
                    arguments.append(self._parse_call_argument())
                    if self._match(TokenType.COMMA):
                        continue
                    if self._match(TokenType.R_PAREN):
                        break
                    raise UnexpectedToken("expected , or )", self._curr or None)
            if self._curr:
                raise UnexpectedToken("unexpected text after the closing )", self._curr or None)
            return arguments

        def _parse_call_argument(self) -> exp.Expression:
            start, name = self._curr, None
            following = self._next.token_type if self._next else None
            if not start:
                raise UnexpectedToken("expected an argument", None)
            if following == TokenType.FARROW:
                name = start.text
                self._advance(2)
            elif following in _OTHER_ARROWS and start.token_type != TokenType.STRING:
                written = f"{start.text} {self._next.text} value"
                raise UnexpectedToken(f"named arguments are written {start.text} => value, not {written}", self._next)
            if not self._curr or self._curr.token_type in (TokenType.COMMA, TokenType.R_PAREN):
                raise UnexpectedToken(f"expected a value{f' for argument {name}' if name else ''}", self._curr or None)
            try:
                value = self._parse_disjunction()
            except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
                # sqlglot's builders of known functions fail on an unexpected number or kind of arguments.
                raise UnexpectedToken("a value that cannot be read", start) from None
            if value is None:
                raise UnexpectedToken("expected a value", self._curr or None)
            node = exp.Kwarg(this=exp.to_identifier(name, quoted=True), expression=value) if name else value
            node.meta["start"] = start.start
            return node


def parse_call(
    sql: str,
    *,
    args: Mapping[str, Any] | Sequence[Any] | None = None,
    now_ms: int = 0,
    time_zone: str = "UTC",
    settings: TextSettings | None = None,
) -> Call | None:
    """Parse the CALL in a statement; None when the text is not a CALL.

    Raises CallSyntaxError, with line, column and a caret, when the CALL cannot be parsed. Runs nothing.

    >>> call = parse_call("CALL compact_table('db.t', target => 512 * 1024 * 1024)")
    >>> call.procedure, [(a.name, a.value) for a in call.arguments]
    ('compact_table', [(None, 'db.t'), ('target', 536870912)])
    """
    name = called_name(sql)
    if name is None:
        return None
    try:
        settings = settings or TextSettings(time_zone)
        nodes = _argument_nodes(sql, name.end, settings)
        now = dt.datetime.fromtimestamp(now_ms / 1000, tz=dt.timezone.utc)
        return Call(name.parts, _arguments(sql, name.procedure, nodes, Evaluator(args, now, settings)))
    except UnexpectedToken as error:
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


def _argument_nodes(sql: str, start: int, settings: TextSettings) -> list[exp.Expression]:
    dialect = CallDialect()
    dialect.escapes = settings.escapes
    # Replace the text before the arguments by blanks: offsets stay those of the statement.
    blanked = "".join(c if c == "\n" else " " for c in sql[:start]) + without_line_comments(sql, start)[start:]
    tokens = dialect.tokenize(blanked)
    while tokens and tokens[-1].token_type == TokenType.SEMICOLON:
        tokens.pop()
    for token in tokens:
        if token.token_type == TokenType.SEMICOLON:
            raise UnexpectedToken("unexpected ; : one statement at a time", token)
    if not tokens:
        raise UnexpectedToken("expected ( after the procedure's name", None)
    [statement] = dialect.parser(error_level=ErrorLevel.IMMEDIATE).parse(tokens, blanked)
    assert statement is not None
    return list(statement.expressions)


def _arguments(
    sql: str, procedure: str, nodes: list[exp.Expression], evaluator: Evaluator
) -> tuple[GivenArgument, ...]:
    given: list[GivenArgument] = []
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
                iceberg=iceberg_errors.positional_after_named(procedure, given[-1].name),
            )
        try:
            value = evaluator.value(node.expression if named else node)
        except (ValueError, OverflowError, ArithmeticError) as error:
            raise _syntax_error(sql, procedure, f"argument {name or position}: {error}", offset) from None
        line, column = line_and_column(sql, offset)
        given.append(GivenArgument(value, name, line, column))
    return tuple(given)


def line_and_column(sql: str, offset: int) -> tuple[int, int]:
    """Line and column of an offset, both counted from 1."""
    return sql.count("\n", 0, offset) + 1, offset - (sql.rfind("\n", 0, offset) + 1) + 1


def _string_value(parser: Any, token: Token) -> str:
    raw = parser.sql[token.start : token.end + 1]
    try:
        return unquote(raw) if parser.dialect.escapes else raw[1:-1]
    except ValueError as error:
        raise UnexpectedToken(f"string {token.text!r} {error}", token) from None


def _offset_of(sql: str, line: int | None, column: int | None, highlight: str | None) -> int:
    """The offset of a token's start, from the line and column of its end as sqlglot reports them."""
    if not line:
        return len(sql.rstrip())
    start = 0
    for _ in range(line - 1):
        start = sql.find("\n", start) + 1
    return max(start, start + (column or 1) - len(highlight or " "))


def _syntax_error(
    sql: str,
    procedure: str,
    message: str,
    offset: int,
    hint: str | None = None,
    iceberg: IcebergError | None = None,
) -> CallSyntaxError:
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
        iceberg=iceberg,
        excerpt=f"{text[window : window + 120]}\n{' ' * (column - 1 - window)}^",
    )
