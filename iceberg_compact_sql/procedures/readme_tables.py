"""The tables of the README, made from the declarations.

`python -m iceberg_compact_sql.procedures.readme_tables README.md` writes them anew; a test keeps them equal.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path

from iceberg_compact_sql.call.declaration import Column, Procedure

_BLOCK = re.compile(r"(<!-- procedure: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def procedure_section(procedure: Procedure) -> str:
    """What the README says of one procedure: summary, example, arguments, columns."""
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
        lines.append(f"| `{parameter.name}` | {kind} | {parameter.shown_default} | {parameter.meaning}{option} |")
    lines += ["", f"Result: {_shown(procedure.columns)}."]
    if procedure.dry_run_columns:
        lines += ["", f"With `dry_run => true`: {_shown(procedure.dry_run_columns)}."]
    if procedure.aliases:
        names = ", ".join(f"`{alias.name}({', '.join(alias.positions)})`" for alias in procedure.aliases)
        lines += ["", f"Iceberg's own name for it: {names}."]
    return "\n".join(lines) + "\n"


def with_current_sections(text: str, procedures: Mapping[str, Procedure]) -> str:
    """The README with every `<!-- procedure: name -->` block made anew."""
    return _BLOCK.sub(lambda match: match[1] + procedure_section(procedures[match[2]]) + match[3], text)


def _shown(columns: tuple[Column, ...]) -> str:
    return ", ".join(f"`{column.name}` {column.type}" for column in columns)


def main(path: str) -> None:
    """Write the file's sections anew."""
    from iceberg_compact_sql.procedures.registry import procedures

    readme = Path(path)
    readme.write_text(with_current_sections(readme.read_text(encoding="utf-8"), procedures()), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
