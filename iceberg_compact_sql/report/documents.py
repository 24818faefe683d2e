"""The documents of the package by topic, for `iceberg-compact-sql docs` and `CALL help`."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path

from iceberg_compact_sql.report.render import console_for_people

FOLDER = Path(__file__).parents[1] / "docs"
# In the order in which they are listed.
TOPICS = (
    "procedures",
    "calls",
    "commands",
    "catalogs",
    "settings",
    "filters",
    "scores",
    "cluster",
    "service",
    "limits",
    "figures",
    "versions",
    "develop",
    "changelog",
)
_COMMENT = re.compile(r"^<!--.*?-->\n", re.MULTILINE)
_HEADING = re.compile(r"^## (.+)$", re.MULTILINE)
_LINK = re.compile(r"\[([^\]]+)\]\([^)]+\)")


@dataclass(frozen=True)
class Topic:
    """One document: its name, its first paragraph, and its Markdown text without the markers of generated parts."""

    name: str
    summary: str
    text: str

    def sections(self) -> list[tuple[str, str]]:
        """Return headings and texts in order; the text before the first heading has an empty heading."""
        parts = _HEADING.split(self.text)
        return [("", parts[0].strip()), *((h, t.strip()) for h, t in zip(parts[1::2], parts[2::2], strict=True))]


def read_topic(name: str) -> Topic:
    """Return the document of a topic in TOPICS."""
    text = _COMMENT.sub("", (FOLDER / f"{name}.md").read_text(encoding="utf-8"))
    summary = text.split("\n\n")[1].replace("\n", " ")
    return Topic(name, _LINK.sub(r"\1", summary), text)


def print_markdown(text: str) -> None:
    """Write Markdown to standard output: formatted on a terminal, unchanged in a file or a pipe."""
    if not sys.stdout.isatty():
        sys.stdout.write(text if text.endswith("\n") else f"{text}\n")
        return
    # Imported late: only this command needs it, and the import is slow.
    from rich.markdown import Markdown

    console_for_people().print(Markdown(text, hyperlinks=False))
