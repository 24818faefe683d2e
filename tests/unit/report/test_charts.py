"""Charts are well-formed SVG, escape every text, and show what they were given."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable

import pytest

from iceberg_compact_sql.report.charts import CHART_CSS, Bar, Dot, bars, empty_chart, histogram, line, stacked_bars

MB = 1024**2
EVIL = "<img src=x onerror=alert(1)>&\"'"
SVG = "{http://www.w3.org/2000/svg}"


def shapes(svg: str, name: str, kind: str | None = None) -> list[ElementTree.Element]:
    found = ElementTree.fromstring(svg).iter(SVG + name)
    return [shape for shape in found if kind is None or shape.get("class") == kind]


def texts(svg: str) -> list[str]:
    return [shape.text or "" for shape in shapes(svg, "text")]


def test_a_histogram_marks_the_target_and_the_small_files() -> None:
    svg = histogram("File sizes", [MB] * 3 + [300 * MB] * 5, target_bytes=512 * MB, small_below=32 * MB)
    [small], [large] = shapes(svg, "rect", "small"), shapes(svg, "rect", "bar")
    assert float(large.get("height", 0)) > float(small.get("height", 0))
    assert small.findtext(SVG + "title") == "3 files of 1 MB to 2 MB"
    assert len(shapes(svg, "line", "mark")) == 1 and "target 512 MB" in texts(svg)
    # Files above the bars' bin of the target are to the right of the line.
    [mark] = shapes(svg, "line", "mark")
    assert float(large.get("x", 0)) < float(mark.get("x1", 0))
    assert ElementTree.fromstring(svg).get("aria-label") == (
        "File sizes: 8 files, 1.5 GB, target 512 MB, 3 files below 32 MB"
    )


@pytest.mark.parametrize("sizes", [[0], [1], [2**62], [5, 2**40], list(range(1, 5000, 7))])
def test_a_histogram_counts_every_file(sizes: list[int]) -> None:
    svg = histogram("t", sizes, target_bytes=MB)
    counts = [int(re.sub(r"[ ,]|files?.*", "", shape.findtext(SVG + "title") or "")) for shape in shapes(svg, "rect")]
    assert sum(counts) == len(sizes)


def test_a_line_has_a_dot_at_each_of_our_commits_inside_the_picture() -> None:
    day = 86_400_000
    svg = line("Files", [(0, 10), (day, 900), (9 * day, 12)], dots=[Dot(9 * day, 12, "run abc")])
    [dot] = shapes(svg, "circle")
    assert dot.findtext(SVG + "title") == "1970-01-10 00:00 UTC: run abc"
    _, _, width, height = map(float, (ElementTree.fromstring(svg).get("viewBox") or "").split())
    assert 0 < float(dot.get("cx", 0)) <= width and 0 < float(dot.get("cy", 0)) < height
    assert {"1970-01-01", "1970-01-10"} <= set(texts(svg))


def test_long_histories_stay_small() -> None:
    svg = line("Files", [(index * 1000, index % 97) for index in range(100_000)])
    assert len(svg) < 40_000


def test_bars_are_as_long_as_their_values() -> None:
    svg = bars("Use", [Bar("a", 10), Bar("b", 5, "good", "half"), Bar("c", 0)])
    a, b, c = (
        float(shapes(svg, "rect", kind)[index].get("width", 0)) for kind, index in (("bar", 0), ("good", 0), ("bar", 1))
    )
    assert a == pytest.approx(2 * b, abs=0.2) and c == 0
    assert {"a", "10", "b", "half", "c", "0"} <= set(texts(svg))


def test_stacked_bars_add_up() -> None:
    svg = stacked_bars("Jobs", [("mon", {"done": 3, "failed": 1}), ("tue", {"done": 0, "waiting": 2})])
    tops = {shape.findtext(SVG + "title"): float(shape.get("y", 0)) for shape in shapes(svg, "rect")}
    assert set(tops) == {"mon: 3 done", "mon: 1 failed", "tue: 2 waiting"}
    assert tops["mon: 1 failed"] < tops["mon: 3 done"] < tops["tue: 2 waiting"]


CHARTS: list[Callable[[], str]] = [
    lambda: histogram(EVIL, [1, 2], target_bytes=3),
    lambda: line(EVIL, [(0, 1), (5, 2)], dots=[Dot(5, 2, EVIL)], unit=EVIL),
    lambda: bars(EVIL, [Bar(EVIL, 1, EVIL, EVIL)]),
    lambda: stacked_bars(EVIL, [(EVIL, {EVIL: 1})]),
    lambda: empty_chart(EVIL, EVIL),
    lambda: histogram(EVIL, []),
    lambda: line(EVIL, []),
    lambda: bars(EVIL, []),
    lambda: stacked_bars(EVIL, []),
    lambda: bars("t", [Bar("zero", 0)]),
    lambda: line("t", [(2**62, 0)]),
    lambda: line("t", [(0, 0.25), (1, 0.5)]),
]


@pytest.mark.parametrize("chart", CHARTS)
def test_every_chart_is_xml_with_a_title_and_without_markup_of_others(chart: Callable[[], str]) -> None:
    svg = chart()
    root = ElementTree.fromstring(svg)
    assert root.tag == SVG + "svg" and root.get("role") == "img"
    assert root.findtext(SVG + "title") == root.get("aria-label")
    assert {element.tag.removeprefix(SVG) for element in root.iter()} <= {
        "svg", "title", "g", "rect", "line", "path", "circle", "text",
    }  # fmt: skip
    assert "<img" not in svg and "style=" not in svg and "<script" not in svg
    names = {name for element in root.iter() for name in element.keys()}  # noqa: SIM118
    assert not [name for name in names if name.startswith("on") or name in ("href", "src", "style")]


def test_the_rules_load_nothing() -> None:
    assert "url(" not in CHART_CSS and "@import" not in CHART_CSS
