"""One table as one HTML file: charts, figures, partitions and findings. No script, nothing loaded from elsewhere."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

from iceberg_compact_sql.report.charts import CHART_CSS, Bar, Dot, bars, histogram, line
from iceberg_compact_sql.units import format_bytes, format_duration
from iceberg_compact_sql.version import VERSION

MOST_PARTITIONS = 100
MOST_COMMITS = 50

PAGE_CSS = (
    """
:root{color-scheme:light dark;--paper:#f5f6f8;--card:#fff;--edge:#dfe3e8;--ink:#1c222b;--ink-soft:#5b6472;
--blue:#3b6fd8;--amber:#c97a10;--red:#c8402f;--green:#2f8f5b}
@media (prefers-color-scheme:dark){:root{
--paper:#14171c;--card:#1d2229;--edge:#323944;--ink:#e8ebf0;
--ink-soft:#a3adba;--blue:#79a4ff;--amber:#e6a347;--red:#ff7b6b;--green:#5fc38d}}
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);
font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
main{max-width:1120px;margin:0 auto;padding:24px 16px 48px}
header{margin-bottom:20px}
h1{font-size:24px;line-height:1.25;margin:0 0 4px;overflow-wrap:anywhere}
h2{font-size:16px;margin:0 0 12px}
p{margin:0 0 8px}
.soft{color:var(--ink-soft);font-size:13px}
.cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(140px,1fr));gap:12px;margin-bottom:16px}
.figure,.card{background:var(--card);border:1px solid var(--edge);border-radius:10px;padding:14px 16px}
.figure b{display:block;font-size:22px;line-height:1.25;font-variant-numeric:tabular-nums}
.figure span{color:var(--ink-soft);font-size:13px}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,420px),1fr));gap:16px;margin-bottom:16px}
section.card{margin-bottom:16px;min-width:0}
.charts section.card{margin:0}
.scroll{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-size:14px}
th,td{text-align:left;padding:7px 10px;border-top:1px solid var(--edge);vertical-align:top}
thead th{border-top:0;color:var(--ink-soft);font-weight:600;font-size:13px;white-space:nowrap}
td.number,th.number{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
td.name{overflow-wrap:anywhere;min-width:9em}
td.words{min-width:16em}
code{font:13px/1.45 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;overflow-wrap:anywhere;white-space:pre-wrap}
.finding{border-top:1px solid var(--edge);padding:12px 0}
.finding:first-of-type{border-top:0;padding-top:0}
.finding code{display:block;background:var(--paper);border:1px solid var(--edge);border-radius:6px;
padding:7px 9px;margin:6px 0}
.tag{display:inline-block;border-radius:99px;padding:1px 9px;font-size:12px;font-weight:600;
border:1px solid currentColor}
.high{color:var(--red)}.medium{color:var(--amber)}.low{color:var(--ink-soft)}.fine{color:var(--green)}
meter{width:64px;vertical-align:middle}
@media (max-width:480px){main{padding:16px 10px 32px}h1{font-size:20px}.card,.figure{padding:12px}
.cards{grid-template-columns:repeat(2,1fr);gap:8px}}
@media print{body{background:#fff}.card,.figure{break-inside:avoid}}
"""
    + CHART_CSS
)


@dataclass(frozen=True, slots=True)
class PartitionRow:
    """One partition of the page; `score` is from 0 to 1."""

    partition: str
    data_files: int
    data_bytes: int
    small_files: int
    delete_files: int
    score: float
    files_saved: int
    cost_dollars: float
    recommendation: str


@dataclass(frozen=True, slots=True)
class CommitRow:
    """One snapshot of the page; `run_id` is set for those that this package committed."""

    time_ms: int
    operation: str
    total_data_files: int | None
    added_data_files: int
    removed_data_files: int
    run_id: str | None = None


@dataclass(frozen=True, slots=True)
class FindingRow:
    """One finding of advise."""

    topic: str
    severity: str
    finding: str
    action: str
    gain: str
    cost_dollars: float | None


@dataclass(frozen=True, slots=True)
class QueryUse:
    """What the queries of a log read: columns by use, bytes by filter, and today against the best candidate."""

    summary: str
    columns: Sequence[tuple[str, int]] = ()
    filters: Sequence[tuple[str, int]] = ()
    layouts: Sequence[tuple[str, float]] = ()


@dataclass(frozen=True, kw_only=True)
class TablePage:
    """Everything that the page of one table shows."""

    table: str
    made_ms: int
    file_bytes: Sequence[int]
    rows: int
    target_bytes: int
    small_below: int
    partitions: Sequence[PartitionRow]
    commits: Sequence[CommitRow]
    findings: Sequence[FindingRow]
    delete_files: Sequence[tuple[str, int]] = ()
    deleted_rows: int = 0
    depths: Sequence[tuple[str, float]] = ()
    depth_note: str = ""
    metadata_bytes: int | None = None
    format_version: int = 2
    queries: QueryUse | None = field(default=None)


def render_page(page: TablePage) -> str:
    """Return the whole HTML file; names, filters and messages of others are text in it, never markup."""
    title = escape(f"{page.table}: table report")
    body = "".join(
        [
            _header(page),
            _figures(page),
            _findings(page),
            _charts(page),
            _queries(page),
            _partitions(page),
            _commits(page),
        ]
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
        'img-src data:">'
        # An empty icon: browsers would ask the server for one.
        f'<link rel="icon" href="data:,"><title>{title}</title><style>{PAGE_CSS}</style></head>'
        f"<body><main>{body}</main></body></html>\n"
    )


def _header(page: TablePage) -> str:
    return (
        f"<header><h1>{escape(page.table)}</h1><p class='soft'>Iceberg format version {page.format_version} &middot; "
        f"report of {_moment(page.made_ms)} &middot; iceberg-compact-sql {escape(VERSION)}</p></header>"
    )


def _figures(page: TablePage) -> str:
    files = len(page.file_bytes)
    total = sum(page.file_bytes)
    small = sum(size < page.small_below for size in page.file_bytes)
    figures = [
        (f"{files:,}", "data files"),
        (format_bytes(total), "data"),
        (format_bytes(total / files) if files else "0 B", "average file"),
        (f"{small:,}", f"files below {format_bytes(page.small_below)}"),
        (f"{page.rows:,}", "rows"),
        (f"{len(page.partitions):,}", "partitions"),
        (f"{sum(count for _, count in page.delete_files):,}", "delete files"),
        (f"{len(page.commits):,}", "snapshots"),
        (format_bytes(page.metadata_bytes) if page.metadata_bytes else "unknown", "metadata.json"),
    ]
    boxes = "".join(f"<div class='figure'><b>{value}</b><span>{escape(name)}</span></div>" for value, name in figures)
    return f"<div class='cards'>{boxes}</div>"


def _findings(page: TablePage) -> str:
    if not page.findings:
        return _card("Findings", "<p class='fine'>Nothing to improve: the table is in good shape.</p>")
    parts = []
    for finding in page.findings:
        cost = "" if finding.cost_dollars is None else f" &middot; costs about {_dollars(finding.cost_dollars)}"
        severity = finding.severity if finding.severity in ("high", "medium", "low") else "low"
        parts.append(
            f"<div class='finding'><p><span class='tag {severity}'>{escape(finding.severity)}</span> "
            f"<b>{escape(finding.topic)}</b></p><p>{escape(finding.finding)}.</p><code>{escape(finding.action)}</code>"
            f"<p class='soft'>Gain: {escape(finding.gain)}{cost}</p></div>"
        )
    return _card("Findings, most valuable first", "".join(parts))


def _charts(page: TablePage) -> str:
    cards = [
        _card(
            "File sizes",
            histogram("File sizes", page.file_bytes, target_bytes=page.target_bytes, small_below=page.small_below),
        ),
        _card("Data files over time", _files_over_time(page)),
        _card("Deletes", _deletes(page)),
        _card("Clustering", _clustering(page)),
    ]
    return f"<div class='charts'>{''.join(cards)}</div>"


def _files_over_time(page: TablePage) -> str:
    known = [(commit.time_ms, commit.total_data_files, commit) for commit in page.commits]
    points = [(time_ms, float(total)) for time_ms, total, _ in known if total is not None]
    dots = [
        Dot(
            time_ms,
            float(total),
            f"{commit.operation}: {commit.removed_data_files} files became {commit.added_data_files}",
        )
        for time_ms, total, commit in known
        if total is not None and commit.run_id is not None
    ]
    note = "A dot is a commit of iceberg-compact-sql." if dots else "No commit of iceberg-compact-sql yet."
    return line("Data files over time", points, dots=dots[-200:], unit="files") + f"<p class='soft'>{note}</p>"


def _deletes(page: TablePage) -> str:
    if not page.delete_files:
        return "<p class='soft'>No delete files.</p>"
    chart = bars("Delete files by kind", [Bar(kind, count, "small") for kind, count in page.delete_files])
    share = page.deleted_rows / page.rows if page.rows else 0.0
    return chart + f"<p class='soft'>{page.deleted_rows:,} rows deleted by position, {share:.1%} of all rows.</p>"


def _clustering(page: TablePage) -> str:
    if not page.depths:
        return f"<p class='soft'>{escape(page.depth_note or 'No column has bounds in enough files.')}</p>"
    rows = [
        Bar(column, depth, "good" if depth <= 4 else "small", f"{depth:.1f} files") for column, depth in page.depths
    ]
    note = page.depth_note or "Files that overlap at a point of a column, on average in a partition. 1 is best."
    return bars("Clustering depth by column", rows) + f"<p class='soft'>{escape(note)}</p>"


def _queries(page: TablePage) -> str:
    if page.queries is None:
        return ""
    use = page.queries
    charts = [
        _card("Columns by use in filters", bars("Scans by column", [Bar(name, count) for name, count in use.columns])),
        _card(
            "Bytes read by filter",
            bars("Bytes read by filter", [Bar(name, size, "bar", format_bytes(size)) for name, size in use.filters]),
        ),
        _card(
            "Share of the table that a scan reads",
            bars(
                "Share read, today and with each layout",
                [
                    Bar(name, share, "small" if index == 0 else "good", f"{share:.0%}")
                    for index, (name, share) in enumerate(use.layouts)
                ],
                most=1.0,
            ),
        ),
    ]
    return _card("Queries", f"<p>{escape(use.summary)}</p>") + f"<div class='charts'>{''.join(charts)}</div>"


def _partitions(page: TablePage) -> str:
    shown = page.partitions[:MOST_PARTITIONS]
    rows = [
        (
            _cell(row.partition or "the whole table", "name"),
            f"<td class='number'>{_meter(row.score)} {row.score:.2f}</td>",
            _cell(f"{row.data_files:,}", "number"),
            _cell(f"{row.small_files:,}", "number"),
            _cell(format_bytes(row.data_bytes / row.data_files if row.data_files else 0), "number"),
            _cell(f"{row.delete_files:,}", "number"),
            _cell(f"{row.files_saved:,}", "number"),
            _cell(_dollars(row.cost_dollars), "number"),
            _cell(row.recommendation, "words"),
        )
        for row in shown
    ]
    heads = ("partition", "score", "files", "small", "average", "deletes", "files saved", "cost", "recommendation")
    left = len(page.partitions) - len(shown)
    note = f"<p class='soft'>{left:,} more partitions with a better score are not shown.</p>" if left else ""
    return _card("Partitions, worst first", _table(heads, rows) + note)


def _commits(page: TablePage) -> str:
    shown = list(reversed(page.commits))[:MOST_COMMITS]
    rows = [
        (
            _cell(_moment(commit.time_ms), "name"),
            _cell(commit.operation),
            _cell(f"{commit.added_data_files:,}", "number"),
            _cell(f"{commit.removed_data_files:,}", "number"),
            _cell("" if commit.total_data_files is None else f"{commit.total_data_files:,}", "number"),
            _cell("iceberg-compact-sql" if commit.run_id is not None else ""),
        )
        for commit in shown
    ]
    heads = ("committed at", "operation", "added", "removed", "data files", "by")
    first = page.commits[0].time_ms if page.commits else page.made_ms
    left = len(page.commits) - len(shown)
    note = f"{len(page.commits):,} snapshots, the oldest is {format_duration(max(0, page.made_ms - first))} old"
    more = f"; {left:,} older ones are not shown" if left else ""
    return _card("Snapshots, newest first", _table(heads, rows) + f"<p class='soft'>{note}{more}.</p>")


def _card(title: str, inner: str) -> str:
    return f"<section class='card'><h2>{escape(title)}</h2>{inner}</section>"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    words = ("partition", "recommendation", "committed at", "operation", "by")
    head = "".join(f"<th scope='col'{'' if name in words else ' class=number'}>{name}</th>" for name in heads)
    body = "".join(f"<tr>{''.join(row)}</tr>" for row in rows)
    return f"<div class='scroll'><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"


def _cell(text: Any, kind: str = "") -> str:
    return f"<td{f' class={kind}' if kind else ''}>{escape(str(text))}</td>"


def _meter(score: float) -> str:
    """Return a score from 0 (good) to 1 as a bar in the browser's own colours."""
    limits = "min='0' max='1' low='0.3' high='0.6' optimum='0'"
    return f"<meter {limits} value='{score:.3f}'>{score:.2f}</meter>"


def _dollars(cost: float) -> str:
    return "$0" if cost == 0 else f"${cost:,.2f}" if cost >= 0.01 else "under $0.01"


def _moment(time_ms: int) -> str:
    return f"{dt.datetime.fromtimestamp(time_ms / 1000, dt.timezone.utc):%Y-%m-%d %H:%M} UTC"
