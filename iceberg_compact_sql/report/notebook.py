"""The result of a call as HTML for notebooks: the charts of the report above the first rows."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from iceberg_compact_sql.report.charts import CHART_CSS, Bar, bars
from iceberg_compact_sql.units import format_bytes

_MOST_BARS = 12
_MOST_ROWS = 20
_CSS = (
    ".ics{max-width:960px}.ics-charts{display:flex;flex-wrap:wrap;gap:24px}.ics-charts>div{flex:1 1 360px}"
    ".ics h4{margin:8px 0 4px}.ics .ics-rows{overflow-x:auto}" + CHART_CSS
)


def answer_html(procedure: str, names: Sequence[str], rows: Sequence[Sequence[Any]]) -> str | None:
    """Return the HTML of a result with charts; None for a result that has none, which is shown as any DataFrame."""
    records = [dict(zip(names, row, strict=True)) for row in rows]
    if not records:
        return None
    if procedure == "score_partitions":
        charts = _score_charts(records)
    elif "action" in names and "group_id" in names:
        charts = _plan_charts(records)
    else:
        return None
    boxes = "".join(f"<div><h4>{escape(title)}</h4>{chart}</div>" for title, chart in charts)
    return f"<div class='ics'><style>{_CSS}</style><div class='ics-charts'>{boxes}</div>{_table(names, rows)}</div>"


def _score_charts(records: Sequence[dict[str, Any]]) -> list[tuple[str, str]]:
    worst = records[:_MOST_BARS]
    scores = [
        Bar(_partition(r), r["score"], "failed" if r["score"] >= 0.6 else "small" if r["score"] >= 0.3 else "good")
        for r in worst
    ]
    saved = [Bar(_partition(r), r["files_saved"], "bar", f"{r['files_saved']:,} of {r['data_files']:,}") for r in worst]
    return [
        ("Score, worst first", bars("Score of partitions", scores, most=1.0)),
        ("Files that a compaction saves", bars("Files saved by partition", saved)),
    ]


def _plan_charts(records: Sequence[dict[str, Any]]) -> list[tuple[str, str]]:
    groups = sorted(records, key=lambda record: (record["action"] != "rewrite", -record["input_bytes"]))[:_MOST_BARS]

    def tone(record: dict[str, Any]) -> str:
        return "bar" if record["action"] == "rewrite" else "muted"

    sizes = [Bar(_partition(r), r["input_bytes"], tone(r), format_bytes(r["input_bytes"])) for r in groups]
    files = [
        Bar(_partition(r), r["data_files"], tone(r), f"{r['data_files']:,} to {r['expected_files']:,}")
        if r["action"] == "rewrite"
        else Bar(_partition(r), r["data_files"], tone(r), f"{r['data_files']:,} kept")
        for r in groups
    ]
    return [
        ("Bytes of each group", bars("Bytes by group", sizes)),
        ("Files, now and then", bars("Files by group", files)),
    ]


def _partition(record: dict[str, Any]) -> str:
    return str(record["partition"]) or "the whole table"


def _table(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    body = "".join(
        "<tr>" + "".join(f"<td>{'' if value is None else escape(str(value))}</td>" for value in row) + "</tr>"
        for row in rows[:_MOST_ROWS]
    )
    more = f"<p>{len(rows) - _MOST_ROWS:,} more rows</p>" if len(rows) > _MOST_ROWS else ""
    return f"<div class='ics-rows'><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>{more}"
