"""The report of a table: complete, self-contained, safe with names of others, small and quick for many files."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pyarrow as pa

from iceberg_compact_sql.actions.context import Context
from iceberg_compact_sql.actions.table_report import ReportRequest, table_report
from iceberg_compact_sql.catalogs.session_view import SessionView
from tests.support.calls import call
from tests.support.plain import PlainLake
from tests.support.planning import MB, fake_append

EVIL = "<img src=x onerror=alert(1)>"
VOID = {"meta", "link", "br", "img", "hr", "input"}


class Page(HTMLParser):
    """Collects tags with their attributes, and fails for tags that are not closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def report(lake: PlainLake, table: str) -> str:
    view = SessionView(conf=lake.conf, current_catalog=lake.name, current_namespace=("db",))
    return table_report(ReportRequest(table=table), Context(view))


def test_the_page_shows_files_history_partitions_and_findings(plain_lake: PlainLake) -> None:
    rows = pa.table({"id": pa.array([1, 2, 3], pa.int64())})
    plain_lake.create("db.t", *[rows] * 6)
    call(plain_lake, "CALL compact_table('db.t')")
    plain_lake.load("db.t").append(rows)
    for _ in range(5):
        plain_lake.load("db.t").append(rows)
    text = report(plain_lake, "db.t")
    page = Page(text)
    words = " ".join(page.texts)
    for expected in (
        "plain.db.t",
        "target 512 MB",
        "Data files over time",
        "A dot is a commit of iceberg-compact-sql.",
        "Partitions, worst first",
        "the whole table",
        "Clustering depth by column",
        "CALL compact_table('plain.db.t')",
        "No delete files.",
        "13 snapshots",
    ):
        assert expected in words, expected
    assert sum(tag == "circle" for tag, _ in page.tags) == 1
    assert [attributes.get("lang") for tag, attributes in page.tags if tag == "html"] == ["en"]
    assert "prefers-color-scheme:dark" in text and "width=device-width" in text


def test_nothing_is_loaded_and_no_script_runs(plain_lake: PlainLake) -> None:
    plain_lake.create("db.t", pa.table({"id": [1]}))
    text = report(plain_lake, "db.t")
    for tag, attributes in Page(text).tags:
        assert tag not in ("script", "img", "iframe", "object", "embed", "form")
        assert not [name for name in attributes if name.startswith("on")]
        assert attributes.get("src") is None and (attributes.get("href") or "data:,") == "data:,"
    assert not re.search(r"url\(|@import|https?://(?!www\.w3\.org/2000/svg)", text)


def test_an_empty_table_has_a_report(plain_lake: PlainLake) -> None:
    plain_lake.catalog.create_table("db.t", pa.schema([("id", pa.int64())]))
    words = " ".join(Page(report(plain_lake, "db.t")).texts)
    assert "Nothing to improve" in words and "no files" in words and "no history" in words


def test_names_of_others_are_text(plain_lake: PlainLake) -> None:
    schema = pa.schema([(EVIL, pa.string()), ("id", pa.int64())])
    table = plain_lake.catalog.create_table(("db", f"t{EVIL}"), schema)
    with table.update_spec() as update:
        update.add_identity(EVIL)
    for number in range(8):
        table.append(pa.table({EVIL: [EVIL], "id": [number]}, schema=schema))
    text = report(plain_lake, f"db.`t{EVIL}`")
    page = Page(text)
    assert "img" not in [tag for tag, _ in page.tags]
    assert f"t{EVIL}" in " ".join(page.texts)


def test_ten_thousand_files_are_less_than_a_megabyte(plain_lake: PlainLake) -> None:
    schema = pa.schema([("id", pa.int64()), ("day", pa.string())])
    table = plain_lake.catalog.create_table("db.t", schema)
    with table.update_spec() as update:
        update.add_identity("day")
    table.refresh()
    fake_append(table, [((f"2026-{n % 500:03d}",), MB * (1 + n % 40), 10) for n in range(10_000)])
    text = report(plain_lake, "db.t")
    assert len(text.encode()) < 1_000_000
    assert "400 more partitions" in text
