"""Several statements in one text, split where Spark would end them."""

from __future__ import annotations


def split_statements(text: str) -> list[str]:
    """The statements of a script, without their semicolons; those in quotes and comments end nothing.

    >>> split_statements("CALL a('x;y'); -- note; more" + chr(10) + "SELECT 1;")
    ["CALL a('x;y')", '-- note; more\\nSELECT 1']
    """
    statements, start, at = [], 0, 0
    while at < len(text):
        if text.startswith("--", at):
            end = text.find("\n", at)
            at = len(text) if end < 0 else end
        elif text.startswith("/*", at):
            end = text.find("*/", at + 2)
            at = len(text) if end < 0 else end + 2
        elif text[at] in "'\"`":
            at = _quote_end(text, at)
        elif text[at] == ";":
            statements.append(text[start:at])
            start = at = at + 1
        else:
            at += 1
    statements.append(text[start:])
    return [one.strip() for one in statements if _has_words(one)]


def _quote_end(text: str, at: int) -> int:
    quote, at = text[at], at + 1
    while at < len(text) and text[at] != quote:
        at += 2 if text[at] == "\\" and quote != "`" else 1
    return at + 1


def _has_words(text: str) -> bool:
    """Whether anything but comments and white space is there."""
    lines = (line.split("--", 1)[0] for line in text.splitlines())
    return any(line.strip() for line in lines)
