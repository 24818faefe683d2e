"""Generates parts of the README and the documents: tables of procedures and arguments, and the list of topics.

`python -m iceberg_compact_sql.procedures.readme_tables` writes them again in the README and in docs/. With paths it
writes only those files. A test keeps them equal to the declarations.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from iceberg_compact_sql.call.declaration import Column, Procedure
from iceberg_compact_sql.report.documents import FOLDER, TOPICS, read_topic

README = FOLDER.parents[1] / "README.md"
# Links in the README are relative to the repository, where the package is a folder.
_DOCS = "iceberg_compact_sql/docs"
_PROCEDURE = re.compile(r"(<!-- procedure: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
_PROCEDURES = re.compile(r"(<!-- procedures -->\n).*?(<!-- end -->)", re.DOTALL)
_TOPICS = re.compile(r"(<!-- topics -->\n).*?(<!-- end -->)", re.DOTALL)


def procedure_section(procedure: Procedure) -> str:
    """Return summary, example, arguments and columns of one procedure, in Markdown."""
    lines = [
        procedure.summary,
        "",
        "```sql",
        procedure.example,
        "```",
        "",
        "| argument | type | default | meaning |",
        "|---|---|---|---|",
    ]
    for parameter in procedure.parameters:
        kind = parameter.shown_kind.replace(" | ", ", ")
        option = f" (Iceberg: `{parameter.option}`)" if parameter.option else ""
        lines.append(f"| `{parameter.name}` | {kind} | {parameter.shown_default} | {parameter.shown_meaning}{option} |")
    lines += ["", f"Result: {_shown(procedure.columns)}."]
    if procedure.dry_run_columns == procedure.columns:
        lines += ["", "With `dry_run => true`: the same columns."]
    elif procedure.dry_run_columns:
        lines += ["", f"With `dry_run => true`: {_shown(procedure.dry_run_columns)}."]
    if procedure.iceberg is not None:
        form = procedure.iceberg
        call = f"system.{form.name}({', '.join(form.positions)})"
        lines += ["", f"Iceberg's form: `{call}`. It returns the first {form.column_count} columns."]
    return "\n".join(lines) + "\n"


def with_current_sections(text: str, procedures: Mapping[str, Procedure]) -> str:
    """Return a document with every part generated again."""
    text = _PROCEDURE.sub(lambda match: match[1] + procedure_section(procedures[match[2]]) + match[3], text)
    text = _PROCEDURES.sub(lambda match: match[1] + "\n".join(_list_of(procedures)) + "\n" + match[2], text)
    return _TOPICS.sub(lambda match: match[1] + "\n".join(_list_of_topics()) + "\n" + match[2], text)


def _list_of(procedures: Mapping[str, Procedure]) -> Iterator[str]:
    yield "| procedure | what it does |"
    yield "|---|---|"
    for name, procedure in procedures.items():
        yield f"| [{name}]({_DOCS}/procedures.md#{name}) | {procedure.summary} |"


def _list_of_topics() -> Iterator[str]:
    yield "| topic | what it says |"
    yield "|---|---|"
    for name in TOPICS:
        yield f"| [{name}]({_DOCS}/{name}.md) | {read_topic(name).summary} |"


def _shown(columns: tuple[Column, ...]) -> str:
    return ", ".join(f"`{column.name}` {column.type}" for column in columns)


def main(*paths: str) -> None:
    """Write the generated parts of these files again; without paths, of the README and of every document."""
    from iceberg_compact_sql.procedures.registry import procedures

    for path in map(Path, paths) if paths else [README, *sorted(FOLDER.glob("*.md"))]:
        path.write_text(with_current_sections(path.read_text(encoding="utf-8"), procedures()), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
