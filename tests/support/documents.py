"""The code blocks, links and headings of the README and the documents, for the tests that check and run them."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
DOCS = ROOT / "iceberg_compact_sql" / "docs"
DOCUMENTS = {path: path.read_text(encoding="utf-8") for path in (README, *sorted(DOCS.glob("*.md")))}
EXAMPLES = (ROOT / "sql_examples" / "dbt" / "README.md",)
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def document(topic: str) -> str:
    """The text of one document."""
    return DOCUMENTS[DOCS / f"{topic}.md"]


def blocks(language: str | None = None) -> list[tuple[str, str]]:
    """Language and text of every block of every document, in the order of the files."""
    found = (match for text in DOCUMENTS.values() for match in _BLOCK.finditer(text))
    return [(match[1], match[2]) for match in found if language in (None, match[1])]


def shell_lines() -> list[str]:
    """Every command that a document tells to type, once."""
    return list(dict.fromkeys(line for _, text in blocks("bash") for line in text.splitlines() if line.strip()))


def links(text: str) -> list[str]:
    """The target of every link and picture, without those inside code blocks."""
    return _LINK.findall(_BLOCK.sub("", text))


def anchors(text: str) -> set[str]:
    """What a link can name after `#`: headings in the spelling of GitHub and of other Markdown tools."""
    headings = _HEADING.findall(_BLOCK.sub("", text))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
