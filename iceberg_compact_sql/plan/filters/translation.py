"""Iceberg's two errors for a filter that Spark accepts and Iceberg cannot use.

Spark translates a filter for the data source first, and Iceberg converts the result. Which error a user gets depends on
the functions in the filter: Spark 4.1 translates the functions below and no others.
"""

from __future__ import annotations

import re

from sqlglot import exp

from iceberg_compact_sql.errors import IcebergError

_TRANSLATED = re.compile(
    r"""
    abs | a?(?:cos|sin|tan)h? | atan2 | cot | degrees | radians | cbrt | sqrt | exp | ln | log | log2 | log10
    | pow | power | ceil | ceiling | floor | round | sign | signum | rand | mod | div | width_bucket
    | case | if | cast | coalesce | ifnull | nvl | greatest | least | isnull | isnotnull
    | aes_decrypt | aes_encrypt | crc32 | md5 | sha | sha1 | sha2
    | bit_length | char_length | character_length | len | length | concat | contains | endswith | startswith | left
    | lcase | lower | ucase | upper | lpad | rpad | ltrim | rtrim | trim | overlay | substr | substring | translate
    | date_add | date_diff | datediff | trunc | extract | second | minute | hour | day | dayofmonth | dayofweek
    | dayofyear | weekday | weekofyear | month | quarter | year
    """,
    re.VERBOSE | re.IGNORECASE,
)
_OPERATORS = (
    *(exp.Column, exp.Dot, exp.Identifier, exp.Bracket, exp.Literal, exp.Boolean, exp.Null, exp.DataType, exp.Var),
    *(exp.Paren, exp.Not, exp.Neg, exp.BitwiseNot, exp.Connector, exp.In, exp.TsOrDsToDate),
)
_TRANSLATED_PATTERN = re.compile(r"%?[^%_\\]*%?|[^%_\\]+%[^%_\\]+")


def cannot_use(text: str, node: exp.Expression) -> IcebergError | None:
    """Iceberg's error for the filter `text`, which is refused because of `node`; None if Spark cannot read it."""
    if isinstance(node, exp.Literal) or any(map(_is_unknown_function, node.walk())):
        return None
    if all(map(_is_translated, node.walk())):
        return IcebergError(f"Cannot convert Spark filter: {text} to Iceberg expression")
    return IcebergError(f"Cannot translate Spark expression: {text} to data source filter")


def _is_unknown_function(node: exp.Expr) -> bool:
    return isinstance(node, exp.Anonymous) and _TRANSLATED.fullmatch(node.name) is None


def _is_translated(node: exp.Expr) -> bool:
    if isinstance(node, _OPERATORS):
        return True
    if isinstance(node, exp.Like):
        return isinstance(node.expression, exp.Literal) and bool(_TRANSLATED_PATTERN.fullmatch(node.expression.name))
    if isinstance(node, exp.Func):
        return _TRANSLATED.fullmatch(re.split(r"\W", node.sql(dialect="spark"), maxsplit=1)[0]) is not None
    return isinstance(node, exp.Binary)
