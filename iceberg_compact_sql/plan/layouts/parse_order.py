"""Reads the text of a `sort_order` argument: columns, transforms, directions, and curves. Knows no table.

user_id, days(at) DESC NULLS LAST, `a column`.field
zorder(a, b)
"""

from __future__ import annotations

import re

from sqlglot.dialects.spark import Spark
from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import Token, TokenType

from iceberg_compact_sql.errors import IcebergError, IcebergKind, InvalidArgumentError, did_you_mean
from iceberg_compact_sql.plan.layouts.named_order import NamedField, NamedOrder, refused
from iceberg_compact_sql.plan.layouts.order import Layout

_WORD = re.compile(r"\w+")
_CURVES: dict[str, Layout] = {"zorder": "zorder", "hilbert": "hilbert"}
# The names of a transform in SQL, and its name in Iceberg's metadata.
_TRANSFORMS = {
    "identity": "identity",
    "bucket": "bucket",
    "truncate": "truncate",
    "year": "year",
    "years": "year",
    "month": "month",
    "months": "month",
    "day": "day",
    "days": "day",
    "date": "day",
    "hour": "hour",
    "hours": "hour",
    "date_hour": "hour",
}
_WITH_WIDTH = ("bucket", "truncate")
_LARGEST_WIDTH = 2**31 - 1
_GRAMMAR = (
    "Give columns or transforms such as 'user_id, days(at) DESC NULLS LAST', or one curve such as 'zorder(a, b)'."
)


def parse_order(text: str) -> NamedOrder:
    """Return the fields of a sort_order; raise InvalidArgumentError with the position of what cannot be read.

    >>> parse_order("id DESC, bucket(16, `my id`)").fields[1]
    NamedField(name=('my id',), transform='bucket[16]', descending=False, nulls_first=True)
    >>> parse_order("ZOrder(a, b.c)").layout
    'zorder'
    """
    return _Parser(text).order()


class _Parser:
    """One pass over the tokens. Keywords are words in a certain place: a column may have any name."""

    def __init__(self, text: str) -> None:
        self._text = text
        try:
            self._tokens = Spark().tokenize(text)
        except TokenError:
            raise self._unreadable("it has a quote that does not end") from None
        self._next = 0

    def order(self) -> NamedOrder:
        if not self._tokens:
            raise self._unreadable("it is empty")
        in_parentheses = self._accept(TokenType.L_PAREN)
        terms = [self._term()]
        while self._accept(TokenType.COMMA):
            terms.append(self._term())
        if in_parentheses:
            self._expect(TokenType.R_PAREN, ")")
        if self._next < len(self._tokens):
            raise self._unreadable("expected a comma, ASC, DESC or NULLS before", self._peek())
        curves = {layout for layout, _ in terms if layout != "sort"}
        if len(curves) > 1:
            sentence = "Cannot mix Zorder and Hilbert sort expressions"
            raise self._mixed("zorder(...) and hilbert(...) cannot be mixed", "Choose one of them.", sentence)
        if curves and any(layout == "sort" for layout, _ in terms):
            sentence = "Cannot mix identity sort columns and a Zorder or Hilbert sort expression"
            hint = "Put all columns into the curve, or sort by columns alone."
            raise self._mixed("a curve and plain columns cannot be mixed", hint, sentence)
        layout: Layout = curves.pop() if curves else "sort"
        return NamedOrder(layout, tuple(field for _, fields in terms for field in fields))

    def _term(self) -> tuple[Layout, tuple[NamedField, ...]]:
        """A column, a transform of one, or a curve, with direction and place of nulls, which a curve ignores."""
        first = self._peek()
        word = self._word("a column")
        layout: Layout = "sort"
        if self._accept(TokenType.L_PAREN):
            curve = _CURVES.get(word.lower()) if first is not None and not _is_quoted(first) else None
            if curve is not None:
                layout, fields = curve, self._columns()
            else:
                fields = (self._transform(word, first),)
        else:
            fields = (NamedField(self._rest_of_name(word)),)
        descending = self._keyword("desc")
        if not descending:
            self._keyword("asc")
        nulls_first = not descending
        if self._keyword("nulls"):
            nulls_first = self._keyword("first")
            if not nulls_first and not self._keyword("last"):
                raise self._unreadable("expected FIRST or LAST after NULLS", self._peek())
        if layout != "sort":
            return layout, fields
        [field] = fields
        return layout, (NamedField(field.name, field.transform, descending, nulls_first),)

    def _columns(self) -> tuple[NamedField, ...]:
        fields = [NamedField(self._rest_of_name(self._word("a column")))]
        while self._accept(TokenType.COMMA):
            fields.append(NamedField(self._rest_of_name(self._word("a column"))))
        self._expect(TokenType.R_PAREN, ")")
        return tuple(fields)

    def _transform(self, function: str, at: Token | None) -> NamedField:
        """A transform of one column; its width may come before or after the column, as in Iceberg."""
        names: list[tuple[str, ...]] = []
        widths: list[int] = []
        while True:
            token = self._peek()
            if token is not None and token.token_type is TokenType.NUMBER:
                self._next += 1
                widths.append(int(token.text) if token.text.isdigit() else 0)
            else:
                names.append(self._rest_of_name(self._word("a column or a number")))
            if not self._accept(TokenType.COMMA):
                break
        self._expect(TokenType.R_PAREN, ")")
        written = f"{function}({', '.join([*map(str, widths), *('.'.join(name) for name in names)])})"
        transform = _TRANSFORMS.get(function.lower())
        if transform is None:
            known = [*dict.fromkeys(_TRANSFORMS.values()), *_CURVES]
            raise refused(
                f"{function}() is not a transform or a curve{self._position(at)}",
                self._text,
                hint=did_you_mean(function.lower(), [*_TRANSFORMS, *_CURVES]) or f"Known: {', '.join(known)}.",
                iceberg=IcebergError(f"Transform is not supported: {written}", IcebergKind.RUNTIME),
            )
        if len(names) != 1:
            sentence = f"Cannot convert transform with more than one column reference: {written}"
            raise refused(
                f"{transform}() takes one column{self._position(at)}", self._text, iceberg=IcebergError(sentence)
            )
        with_width = transform in _WITH_WIDTH
        if len(widths) != with_width or (widths and not 0 < widths[0] <= _LARGEST_WIDTH):
            sentence = f"{'Unsupported' if widths else 'Cannot find'} width for transform: {written}"
            rule = f"a column and a number above 0, such as {transform}(16, id)" if with_width else "only a column"
            raise refused(f"{transform}() takes {rule}{self._position(at)}", self._text, iceberg=IcebergError(sentence))
        return NamedField(names[0], f"{transform}[{widths[0]}]" if with_width else transform)

    def _rest_of_name(self, first: str) -> tuple[str, ...]:
        parts = [first]
        while self._accept(TokenType.DOT):
            parts.append(self._word("the name of a field"))
        return tuple(parts)

    def _word(self, wanted: str) -> str:
        token = self._peek()
        if token is None or not (_is_quoted(token) or _is_word(token)):
            raise self._unreadable(f"expected {wanted}" + (" before" if token is not None else " at its end"), token)
        self._next += 1
        return token.text

    def _keyword(self, word: str) -> bool:
        token = self._peek()
        if token is None or _is_quoted(token) or token.text.lower() != word:
            return False
        self._next += 1
        return True

    def _accept(self, kind: TokenType) -> bool:
        token = self._peek()
        if token is None or token.token_type is not kind:
            return False
        self._next += 1
        return True

    def _expect(self, kind: TokenType, shown: str) -> None:
        if not self._accept(kind):
            token = self._peek()
            raise self._unreadable(f"expected {shown!r}" + (" before" if token is not None else " at its end"), token)

    def _peek(self) -> Token | None:
        return self._tokens[self._next] if self._next < len(self._tokens) else None

    def _position(self, token: Token | None) -> str:
        if token is None:
            return ""
        before = self._text[: token.start]
        line, column = before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1
        return f", at line {line}, column {column} of the order"

    def _unreadable(self, reason: str, token: Token | None = None) -> InvalidArgumentError:
        shown = f" '{self._text[token.start : token.end + 1]}'{self._position(token)}" if token is not None else ""
        return refused(
            f"{reason}{shown}",
            self._text,
            hint=_GRAMMAR,
            iceberg=IcebergError(f"Unable to parse sortOrder: {self._text}"),
        )

    def _mixed(self, reason: str, hint: str, sentence: str) -> InvalidArgumentError:
        return refused(reason, self._text, hint=hint, iceberg=IcebergError(f"{sentence}: {self._text}"))


def _is_quoted(token: Token) -> bool:
    return token.token_type is TokenType.IDENTIFIER


def _is_word(token: Token) -> bool:
    if token.token_type in (TokenType.STRING, TokenType.NUMBER):
        return False
    return _WORD.fullmatch(token.text) is not None
