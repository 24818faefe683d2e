"""Detect whether a statement is a CALL, and of which procedure, from its first words.

Every statement of a session is checked here, so the check takes a few microseconds and imports nothing.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class CalledName:
    """The dotted name after CALL; `end` is the offset after its last character."""

    parts: tuple[str, ...]
    end: int

    @property
    def procedure(self) -> str:
        return self.parts[-1].lower()


def called_name(sql: str) -> CalledName | None:
    """Return the name that a CALL statement calls; None for any other statement.

    >>> called_name("-- nightly" + chr(10) + "call `lake`.system.compact_table('db.t')").parts
    ('lake', 'system', 'compact_table')
    >>> called_name("SELECT 1") is None
    True
    """
    at = _skip_blank(sql, 0)
    if sql[at : at + 4].upper() != "CALL" or _is_word(sql[at + 4 : at + 5]):
        return None
    parts = []
    at = _skip_blank(sql, at + 4)
    while True:
        word, end = _identifier(sql, at)
        if not word:
            return None
        parts.append(word)
        at = _skip_blank(sql, end)
        if sql[at : at + 1] != ".":
            return CalledName(tuple(parts), end)
        at = _skip_blank(sql, at + 1)


def _skip_blank(sql: str, at: int) -> int:
    """The offset of the first character that is neither white space nor part of a comment."""
    while at < len(sql):
        if sql[at].isspace():
            at += 1
        elif sql.startswith("--", at):
            at = line_comment_end(sql, at)
        elif sql.startswith("/*", at):
            at = comment_end(sql, at)
        else:
            break
    return at


def line_comment_end(sql: str, at: int) -> int:
    """The offset of the line break that ends the comment at `at`; Spark continues it after a backslash."""
    while at < len(sql) and (sql[at] not in "\r\n" or sql[at - 1 : at + 1] == "\\\n"):
        at += 1
    return at


def comment_end(sql: str, at: int) -> int:
    """The offset after the bracketed comment that starts at `at`. In Spark they nest."""
    depth = 0
    while at < len(sql):
        if sql.startswith("/*", at):
            depth, at = depth + 1, at + 2
        elif sql.startswith("*/", at):
            depth, at = depth - 1, at + 2
            if depth == 0:
                return at
        else:
            at += 1
    return at


def _identifier(sql: str, at: int) -> tuple[str, int]:
    if sql[at : at + 1] == "`":
        word, at = [], at + 1
        while at < len(sql):
            end = sql.find("`", at)
            if end < 0:
                return "", at
            word.append(sql[at:end])
            if sql[end + 1 : end + 2] != "`":
                return "".join(word), end + 1
            word.append("`")
            at = end + 2
        return "", at
    end = at
    while end < len(sql) and _is_word(sql[end]):
        end += 1
    return sql[at:end], end


def _is_word(character: str) -> bool:
    return character.isalnum() or character == "_"
