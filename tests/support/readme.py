"""The README's code blocks, for the tests that run them."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def blocks(language: str | None = None) -> list[tuple[str, str]]:
    """Language and text of every block, in the order of the file."""
    return [(found[1], found[2]) for found in _BLOCK.finditer(TEXT) if language in (None, found[1])]


def shell_lines() -> list[str]:
    """Every command that the README tells to type."""
    return [line for _, text in blocks("bash") for line in text.splitlines() if line.strip()]
