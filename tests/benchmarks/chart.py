"""A bar chart of the measurements as an SVG of its own, without a library."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from tests.benchmarks.measuring import SLOWER, Measurement

WIDTH, LEFT, BAR, GAP, TOP = 860, 170, 13, 14, 74
COLOURS = {
    "ours": "#0f766e",
    "iceberg": "#94a3b8",
    "pyarrow": "#d6b370",
    "cat": "#e7d9b8",
    "duckdb": "#c4a7e7",
    "polars": "#a7c4e7",
    "datafusion": "#e7a7b0",
    "1 executor": "#7cc4bb",
    "2 executors": "#0f766e",
}
NAMES = {
    "ours": "iceberg-compact-sql",
    "iceberg": "Iceberg's Spark procedures",
    "pyarrow": "plain pyarrow",
    "cat": "cat",
    "duckdb": "DuckDB",
    "polars": "polars",
    "datafusion": "DataFusion",
    "1 executor": "ours, 1 executor",
    "2 executors": "2 executors",
}
STYLE = (
    "text{font:12px system-ui,sans-serif;fill:#334155}.t{font-size:16px;font-weight:600}.v{font-size:11px}"
    "@media(prefers-color-scheme:dark){text{fill:#cbd5e1}}"
)


def draw(measurements: Sequence[Measurement], subtitle: str) -> str:
    """Wall seconds, a block of bars a case; each block has a scale of its own, the figures stand beside the bars."""
    cases = list(dict.fromkeys(m.case for m in measurements))
    parts: list[str] = []
    y = TOP
    for case in cases:
        members = [m for m in measurements if m.case == case]
        longest = max(m.wall_s for m in members) or 1.0
        parts.append(
            f'<text x="{LEFT - 10}" y="{y + BAR * len(members) / 2 + 4}" text-anchor="end">{escape(case)}</text>'
        )
        faster = {SLOWER[m.side]: m for m in members if m.side in SLOWER}
        for member in members:
            length = max(2.0, (WIDTH - LEFT - 150) * member.wall_s / longest)
            label = f"{member.wall_s:.2f} s"
            other = faster.get(member.side)
            if other is not None and other.wall_s > 0:
                label += f"  ({member.wall_s / other.wall_s:.1f}×)"
            colour = COLOURS[member.side]
            parts.append(
                f'<rect x="{LEFT}" y="{y}" width="{length:.1f}" height="{BAR - 2}" rx="2" fill="{colour}"/>'
                f'<text class="v" x="{LEFT + length + 6:.1f}" y="{y + BAR - 3}">{label}</text>'
            )
            y += BAR
        y += GAP
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y + 6}" role="img" '
        f'aria-label="Wall seconds by case"><style>{STYLE}</style>'
        f'<text class="t" x="12" y="24">Wall time, all in (lower is better)</text>'
        f'<text class="v" x="12" y="42">{escape(subtitle)}</text>{_legend(measurements)}{"".join(parts)}</svg>\n'
    )


def _legend(measurements: Sequence[Measurement]) -> str:
    shown = {m.side for m in measurements}
    x, parts = 12, []
    for side, name in NAMES.items():
        if side not in shown:
            continue
        parts.append(f'<rect x="{x}" y="52" width="10" height="10" rx="2" fill="{COLOURS[side]}"/>')
        parts.append(f'<text class="v" x="{x + 15}" y="61">{escape(name)}</text>')
        x += 40 + 7 * len(name)
    return "".join(parts)
