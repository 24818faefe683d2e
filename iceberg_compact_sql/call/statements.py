"""Split a script into statements where Spark's shell splits it."""

from __future__ import annotations

from iceberg_compact_sql.call.detect import comment_end, line_comment_end


def split_statements(text: str) -> list[str]:
    """The statements of a script without their semicolons. A semicolon in quotes or a comment does not split.

    >>> split_statements("CALL a('x;y'); -- note; more" + chr(10) + "SELECT 1;")
    ["CALL a('x;y')", '-- note; more\\nSELECT 1']
    """
    statements: list[str] = []
    start = at = 0
    # Whether anything but comments and white space was seen since `start`.
    has_words = False
    while at < len(text):
        if text.startswith("--", at):
            at = line_comment_end(text, at)
        elif text.startswith("/*", at):
            at = comment_end(text, at)
        elif text[at] == ";":
            if has_words:
                statements.append(text[start:at].strip())
            start = at = at + 1
            has_words = False
        else:
            has_words = has_words or not text[at].isspace()
            at = quote_end(text, at) if text[at] in "'\"`" else at + 1
    return [*statements, text[start:].strip()] if has_words else statements


def without_line_comments(text: str, at: int) -> str:
    """Replace line comments from offset `at` on by blanks; every other character keeps its offset."""
    if "--" not in text:
        return text
    parts: list[str] = []
    start = 0
    while at < len(text):
        if text.startswith("--", at):
            end = line_comment_end(text, at)
            parts += [text[start:at], *(c if c == "\n" else " " for c in text[at:end])]
            start = at = end
        elif text.startswith("/*", at):
            at = comment_end(text, at)
        else:
            at = quote_end(text, at) if text[at] in "'\"`" else at + 1
    return "".join((*parts, text[start:]))


def quote_end(text: str, at: int) -> int:
    """The offset after a quoted string or name; a backslash escapes a character, except in names and raw strings."""
    quote = text[at]
    raw = at > 0 and text[at - 1] in "rR" and not (at > 1 and (text[at - 2].isalnum() or text[at - 2] == "_"))
    at += 1
    while at < len(text) and text[at] != quote:
        at += 2 if text[at] == "\\" and quote != "`" and not raw else 1
    return at + 1
