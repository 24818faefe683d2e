"""Charts as SVG text: histogram, line, bars and stacked bars. No script, no style attribute, nothing loaded.

Every text that a caller gives is escaped. Colours come from `CHART_CSS` by class, so that a page with a strict content
policy can serve the same rules as a file. Without the rules a chart is still readable: shapes have plain fills.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from iceberg_compact_sql.units import format_bytes

# Wide enough for labels, narrow enough that text stays readable on a phone.
_WIDTH, _HEIGHT = 460, 210
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 14, 26, 30
_PLOT_WIDTH, _PLOT_HEIGHT = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM
_ROW_HEIGHT = 24
_MOST_BARS = 48
# More points than this are not visible on a screen.
_MOST_POINTS = 600

CHART_CSS = """
.chart{width:100%;height:auto;display:block;color:var(--ink-soft,#5b6472)}
.chart text{font:11px system-ui,-apple-system,"Segoe UI",Roboto,sans-serif;fill:currentColor}
.chart .grid{stroke:currentColor;stroke-opacity:.16}
.chart .bar,.chart .done{fill:var(--blue,#3b6fd8)}
.chart .small,.chart .waiting{fill:var(--amber,#d98a1f)}
.chart .failed{fill:var(--red,#c8402f)}
.chart .good{fill:var(--green,#2f8f5b)}
.chart .muted{fill:currentColor;fill-opacity:.35}
.chart .track{fill:currentColor;fill-opacity:.1}
.chart .line{fill:none;stroke:var(--blue,#3b6fd8);stroke-width:2;stroke-linejoin:round}
.chart .area{fill:var(--blue,#3b6fd8);fill-opacity:.12}
.chart .dot{fill:var(--green,#2f8f5b);stroke:var(--card,#fff);stroke-width:1.5}
.chart .mark{stroke:var(--ink,#1c222b);stroke-width:1.5;stroke-dasharray:4 3}
.chart .mark-text{fill:var(--ink,#1c222b);font-weight:600}
"""


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar: its label, value, colour class (`bar`, `small`, `good`, `failed`, `muted`), and the text beside it."""

    label: str
    value: float
    tone: str = "bar"
    text: str | None = None


@dataclass(frozen=True, slots=True)
class Dot:
    """An event on a line chart: epoch milliseconds, the height of the line there, and what happened."""

    time_ms: int
    value: float
    text: str


def histogram(
    title: str, sizes: Sequence[int], *, target_bytes: int | None = None, small_below: int | None = None
) -> str:
    """Return how many files there are of each size, in powers of two, with the target as a line.

    Bars of files below `small_below` have the colour of small files.
    """
    if not sizes:
        return empty_chart(title, "no files")
    exponents = [_exponent(size) for size in sizes]
    marks = exponents if target_bytes is None else [*exponents, _exponent(target_bytes)]
    first, last = min(marks), max(marks)
    # A table with one size still has neighbours, so that the bar does not fill the chart.
    while last - first < 5:
        first, last = max(0, first - 1), last + 1
    counts = [0] * (last - first + 1)
    for exponent in exponents:
        counts[exponent - first] += 1
    most, ticks = _scale(max(counts))
    step = _PLOT_WIDTH / len(counts)
    parts = _horizontal_grid(ticks, most)
    for index, count in enumerate(counts):
        low = 2 ** (first + index)
        if count:
            tone = "small" if small_below is not None and low < small_below else "bar"
            text = f"{_files(count)} of {format_bytes(low)} to {format_bytes(low * 2)}"
            parts.append(_column(_LEFT + index * step + 1, step - 2, 0, count, most, tone, text))
    every = max(1, math.ceil(len(counts) / 7))
    for index in range(0, len(counts), every):
        parts.append(_text(_LEFT + index * step, _HEIGHT - 10, format_bytes(2 ** (first + index)), "middle"))
    if target_bytes is not None:
        place = min(_PLOT_WIDTH, (math.log2(max(1, target_bytes)) - first) * step)
        parts.append(_mark(_LEFT + place, f"target {format_bytes(target_bytes)}"))
    note = f"{_files(len(sizes))}, {format_bytes(sum(sizes))}"
    if target_bytes is not None:
        note += f", target {format_bytes(target_bytes)}"
    if small_below is not None:
        note += f", {_files(sum(size < small_below for size in sizes))} below {format_bytes(small_below)}"
    return _svg(title, note, parts)


def line(title: str, points: Sequence[tuple[int, float]], *, dots: Sequence[Dot] = (), unit: str = "") -> str:
    """Return values over time as steps; `points` are epoch milliseconds and values in order of time."""
    if not points:
        return empty_chart(title, "no history")
    points = _thinned(points)
    times = [time_ms for time_ms, _ in points] + [dot.time_ms for dot in dots]
    start, end = min(times), max(times)
    span = max(1, end - start)
    most, ticks = _scale(max([value for _, value in points] + [dot.value for dot in dots]))

    def x(time_ms: int) -> float:
        return _LEFT + _PLOT_WIDTH * (time_ms - start) / span

    parts = _horizontal_grid(ticks, most)
    path = [f"M{_n(x(points[0][0]))} {_n(_y(points[0][1], most))}"]
    path += [f"H{_n(x(time_ms))}V{_n(_y(value, most))}" for time_ms, value in points[1:]]
    path.append(f"H{_n(_LEFT + _PLOT_WIDTH)}")
    bottom = _n(_TOP + _PLOT_HEIGHT)
    parts.append(f'<path class="area" fill-opacity="0.1" d="{"".join(path)}V{bottom}H{_n(x(points[0][0]))}Z"/>')
    parts.append(f'<path class="line" fill="none" stroke="#3b6fd8" d="{"".join(path)}"/>')
    for dot in dots:
        parts.append(
            f'<circle class="dot" r="4" cx="{_n(x(dot.time_ms))}" cy="{_n(_y(dot.value, most))}">'
            f"<title>{escape(_moment(dot.time_ms))}: {escape(dot.text)}</title></circle>"
        )
    for share, anchor in ((0.0, "start"), (0.5, "middle"), (1.0, "end")):
        label = _time_label(start + round(span * share), span)
        if share == 0.0 or end > start:
            parts.append(_text(_LEFT + _PLOT_WIDTH * share, _HEIGHT - 10, label, anchor))
    suffix = f" {unit}" if unit else ""
    note = f"{_count(points[0][1])} to {_count(points[-1][1])}{suffix}, {_moment(start)} to {_moment(end)}"
    if dots:
        note += f"; {len(dots)} marked"
    return _svg(title, note, parts)


def bars(title: str, rows: Sequence[Bar], *, most: float | None = None) -> str:
    """Return horizontal bars, one for each row in order, with label and text; the longest is `most`."""
    if not rows:
        return empty_chart(title, "nothing to show")
    rows = rows[:_MOST_BARS]
    longest = most if most is not None else max((row.value for row in rows), default=0.0)
    start, width = 150, _WIDTH - 150 - 92
    parts = []
    for index, row in enumerate(rows):
        top = 6 + index * _ROW_HEIGHT
        length = width * min(1.0, row.value / longest) if longest > 0 else 0.0
        shown = _count(row.value) if row.text is None else row.text
        parts.append(f"<g><title>{escape(row.label)}: {escape(shown)}</title>{_text(0, top + 13, _short(row.label))}")
        parts.append(
            f'<rect class="track" fill-opacity="0.1" x="{start}" y="{top}" width="{width}" height="16" rx="3"/>'
        )
        parts.append(
            f'<rect class="{escape(row.tone)}" x="{start}" y="{top}" width="{_n(length)}" height="16" rx="3"/>'
        )
        parts.append(_text(start + width + 8, top + 13, shown) + "</g>")
    note = "; ".join(f"{row.label}: {_count(row.value) if row.text is None else row.text}" for row in rows[:12])
    return _svg(title, note, parts, height=12 + len(rows) * _ROW_HEIGHT)


def stacked_bars(title: str, columns: Sequence[tuple[str, Mapping[str, float]]]) -> str:
    """Return one column for each label, made of parts by colour class (`done`, `failed`, `waiting`, `muted`)."""
    if not columns:
        return empty_chart(title, "nothing to show")
    columns = columns[-_MOST_BARS:]
    most, ticks = _scale(max(sum(parts.values()) for _, parts in columns))
    step = _PLOT_WIDTH / len(columns)
    shapes = _horizontal_grid(ticks, most)
    every = max(1, math.ceil(len(columns) / 7))
    for index, (label, parts) in enumerate(columns):
        below = 0.0
        for tone, value in parts.items():
            if value:
                text = f"{label}: {_count(value)} {tone}"
                left = _LEFT + index * step + step * 0.15
                shapes.append(_column(left, step * 0.7, below, value, most, tone, text))
                below += value
        if index % every == 0:
            shapes.append(_text(_LEFT + (index + 0.5) * step, _HEIGHT - 10, label, "middle"))
    totals: dict[str, float] = {}
    for _, parts in columns:
        for tone, value in parts.items():
            totals[tone] = totals.get(tone, 0) + value
    note = ", ".join(f"{_count(value)} {tone}" for tone, value in totals.items())
    return _svg(title, note, shapes)


def empty_chart(title: str, reason: str) -> str:
    """Return a chart without data that says why it has none."""
    return _svg(title, reason, [_text(_WIDTH / 2, 40, reason, "middle")], height=70)


def _svg(title: str, note: str, parts: Sequence[str], height: float = _HEIGHT) -> str:
    label = escape(f"{title}: {note}" if note else title)
    return (
        f'<svg class="chart" xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 {_WIDTH} {_n(height)}" '
        f'font-size="11" font-family="system-ui,sans-serif" aria-label="{label}"><title>{label}</title>'
        + "".join(parts)
        + "</svg>"
    )


def _horizontal_grid(ticks: Sequence[float], most: float) -> list[str]:
    shapes = []
    for tick in ticks:
        y = _n(_y(tick, most))
        shapes.append(
            f'<line class="grid" stroke="#888" stroke-opacity="0.2" x1="{_LEFT}" x2="{_LEFT + _PLOT_WIDTH}" '
            f'y1="{y}" y2="{y}"/>' + _text(_LEFT - 6, _y(tick, most) + 4, _count(tick), "end")
        )
    return shapes


def _column(left: float, width: float, below: float, value: float, most: float, tone: str, text: str) -> str:
    top, bottom = _y(below + value, most), _y(below, most)
    # A count of 1 beside 10,000 is still visible.
    height = max(1.5, bottom - top)
    return (
        f'<rect class="{escape(tone)}" x="{_n(left)}" y="{_n(bottom - height)}" width="{_n(max(1.0, width))}" '
        f'height="{_n(height)}" rx="2"><title>{escape(text)}</title></rect>'
    )


def _mark(x: float, text: str) -> str:
    anchor, at = ("end", x - 5) if x > _LEFT + _PLOT_WIDTH / 2 else ("start", x + 5)
    return (
        f'<line class="mark" stroke="#555" x1="{_n(x)}" x2="{_n(x)}" y1="{_TOP - 14}" y2="{_TOP + _PLOT_HEIGHT}"/>'
        + _text(at, _TOP - 8, text, anchor, "mark-text")
    )


def _text(x: float, y: float, text: str, anchor: str = "start", kind: str = "") -> str:
    kind_text = f' class="{kind}"' if kind else ""
    anchor_text = "" if anchor == "start" else f' text-anchor="{anchor}"'
    return f'<text{kind_text} x="{_n(x)}" y="{_n(y)}"{anchor_text}>{escape(text)}</text>'


def _y(value: float, most: float) -> float:
    return _TOP + _PLOT_HEIGHT * (1 - value / most)


def _scale(largest: float) -> tuple[float, list[float]]:
    """Return the end of the axis and its ticks: round numbers, at most five of them."""
    if largest <= 0:
        return 1.0, [0.0]
    rough = largest / 4
    power = 10 ** math.floor(math.log10(rough)) if rough > 0 else 1.0
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= rough)
    if largest >= 4 or float(largest).is_integer():
        step = max(1.0, math.ceil(step))
    count = math.ceil(largest / step)
    return step * count, [step * index for index in range(count + 1)]


def _thinned(points: Sequence[tuple[int, float]]) -> Sequence[tuple[int, float]]:
    """Keep the first, the last and evenly chosen points between them."""
    if len(points) <= _MOST_POINTS:
        return points
    last = len(points) - 1
    return [points[round(index * last / (_MOST_POINTS - 1))] for index in range(_MOST_POINTS)]


def _exponent(size: int) -> int:
    return max(1, size).bit_length() - 1


def _files(count: int) -> str:
    return f"{count:,} file{'' if count == 1 else 's'}"


def _count(value: float) -> str:
    """Format a number for an axis: 1,234 in full, 12k and 3.4M beyond."""
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= limit:
            size = 1e3 if unit == "k" else limit
            return f"{value / size:.1f}".rstrip("0").rstrip(".") + unit
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:.2f}".rstrip("0").rstrip(".")


def _short(label: str, most: int = 25) -> str:
    return label if len(label) <= most else f"{label[: most - 1]}…"


def _moment(time_ms: int) -> str:
    return f"{_utc(time_ms):%Y-%m-%d %H:%M} UTC"


def _time_label(time_ms: int, span_ms: int) -> str:
    return f"{_utc(time_ms):%Y-%m-%d}" if span_ms > 3 * 86_400_000 else f"{_utc(time_ms):%m-%d %H:%M}"


def _utc(time_ms: int) -> dt.datetime:
    try:
        return dt.datetime(1970, 1, 1) + dt.timedelta(milliseconds=time_ms)
    except OverflowError:
        return dt.datetime.max if time_ms > 0 else dt.datetime.min


def _n(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
