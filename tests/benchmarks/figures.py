"""The tables of docs/figures.md, made from the JSON of a run: `python -m tests.benchmarks.figures`.

A test keeps them equal to tests/benchmarks/results.json, so that every figure was measured.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.benchmarks.measuring import SLOWER

RESULTS = Path(__file__).with_name("results.json")
FIGURES = Path(__file__).parents[2] / "iceberg_compact_sql" / "docs" / "figures.md"
_BLOCK = re.compile(r"(<!-- figures -->\n).*?(<!-- end -->)", re.DOTALL)
WORK = {
    "copy": "16 files of 26 MB, one row group each, into one: row groups copied",
    "decode": "200 files of 1.5 MB into one: decoded, encoded, read back and compared",
    "events java": "60 files of 1.7 MB (events) of Java's writer into one: most columns spliced",
    "events arrow": "the same events, written by pyarrow",
    "shop java": "60 files of 1.7 MB (shop) of Java's writer into one: columns that repeat are encoded",
    "shop arrow": "the same rows of the shop, written by pyarrow",
    "10 KB": "1,000 files of 10 KB into one",
    "wide": "30 files of 4,000 rows with 300 columns into one",
    "nested": "40 files with lists of structs, maps and structs into one",
    "long strings": "30 files with texts of 1 to 2 KB into one",
    "position deletes": "80 files of 1.5 MB with position deletes of 2% of the rows",
    "equality deletes": "the same with equality deletes",
    "streaming": "20 files of 11 MB with equality deletes of 3% of the rows, as a streaming database leaves them",
    "tiny": "a table of 8 tiny files",
    "growth 1x": "20 files of 1.5 MB",
    "growth 2x": "twice as many",
    "growth 4x": "four times as many",
    "plan 10,000 files": "dry run over 10,000 files (Iceberg: its planner alone)",
    "plan 100,000 files": "dry run over 100,000 files (Iceberg: its planner alone)",
    "manifests": "rewrite_manifests after 8 small snapshots",
    "expire": "expire_snapshots of them",
    "orphans": "remove_orphans there",
    "expire 1,000 snapshots": "expire 1,000 snapshots with 10,000 files",
    "cluster": "200 files of 1.5 MB in 40 groups, all decoded, on a standalone cluster with a core an executor",
}


def figures(document: dict[str, Any]) -> str:
    """The tables of costs and of query times in Markdown."""
    return "\n".join([*_costs(document["measurements"]), "", *_queries(document["queries"])]) + "\n"


def with_current_figures(text: str, document: dict[str, Any]) -> str:
    """Return a document with its block of figures made again."""
    return _BLOCK.sub(lambda match: match[1] + figures(document) + match[2], text)


def _costs(measurements: list[dict[str, Any]]) -> Iterator[str]:
    sides: dict[str, dict[str, dict[str, Any]]] = {}
    for one in measurements:
        sides.setdefault(one["case"], {})[one["side"]] = one
    yield "| work | ours | Iceberg 1.12 | wall | CPU |"
    yield "|---|---|---|---|---|"
    for case, work in WORK.items():
        for side, other in SLOWER.items():
            mine = sides.get(case, {}).get(side)
            if mine is not None:
                theirs = sides[case].get(other)
                cells = [_cost(mine), _cost(theirs) if theirs is not None else "not measured"]
                if side != "ours":
                    cells = [f"{side}: {cells[0]}", f"(ours, {other}: {cells[1]})"]
                cells += [f"{mine[key]:.2g} x" if key in mine else "" for key in ("wall_times_less", "cpu_times_less")]
                yield f"| {work} | {' | '.join(cells)} |"


def _cost(one: dict[str, Any]) -> str:
    size = f", {one['output_mb']:.0f} MB" if one["output_mb"] else ""
    return (
        f"{one['wall_s']:.2g} s, {one['cpu_s']:.2g} CPU s{size}"
        if one["wall_s"] < 100
        else (f"{one['wall_s']:.0f} s, {one['cpu_s']:.0f} CPU s{size}")
    )


def _queries(queries: list[dict[str, Any]]) -> Iterator[str]:
    found: dict[tuple[str, str, str], dict[str, dict[str, Any]]] = {}
    for one in queries:
        found.setdefault((one["case"], one["engine"], one["query"]), {})[one["state"]] = one
    yield "| reading afterwards | before | after ours | after Iceberg's |"
    yield "|---|---|---|---|"
    for (case, engine, query), states in found.items():
        cells = [f"{states[state]['seconds']:.2g} s" for state in ("before", "ours", "iceberg")]
        yield f"| {case}: {engine}, {query} | {' | '.join(cells)} |"


def main() -> None:
    """Write the figures of the document again."""
    document = json.loads(RESULTS.read_text())
    FIGURES.write_text(with_current_figures(FIGURES.read_text(encoding="utf-8"), document), encoding="utf-8")


if __name__ == "__main__":
    main()
