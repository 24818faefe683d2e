"""The report in a real browser: no error, nothing asked from elsewhere, readable in light, dark and on a phone."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from iceberg_compact_sql.actions.context import Context
from iceberg_compact_sql.actions.table_report import ReportRequest, table_report
from iceberg_compact_sql.catalogs.session_view import SessionView
from tests.support.browser import NoBrowserError, find_chromium, launch_browser, open_page
from tests.support.calls import call
from tests.support.plain import PlainLake
from tests.support.planning import MB, fake_append

EVIL = "<img src=x onerror=alert(1)>"


def write_report(lake: PlainLake, folder: Path) -> Path:
    """The report of a table with many partitions, one of them with a hostile name."""
    schema = pa.schema([("id", pa.int64()), ("day", pa.string())])
    table = lake.catalog.create_table("db.events", schema)
    with table.update_spec() as update:
        update.add_identity("day")
    table.append(pa.table({"id": [1, 2], "day": ["2026-01-01", EVIL]}, schema=schema))
    for _ in range(6):
        table.append(pa.table({"id": [1, 2], "day": ["2026-01-01", EVIL]}, schema=schema))
    call(lake, "CALL compact_table('db.events')")
    table = lake.load("db.events")
    fake_append(table, [((f"2026-02-{n % 28 + 1:02d}",), MB * (n % 7 * 20 + 1), 1000) for n in range(300)])
    view = SessionView(conf=lake.conf, current_catalog=lake.name, current_namespace=("db",))
    path = folder / "report.html"
    path.write_text(table_report(ReportRequest(table="db.events"), Context(view)), encoding="utf-8")
    return path


def test_the_report_in_a_browser(plain_lake: PlainLake, tmp_path: Path) -> None:
    url = write_report(plain_lake, tmp_path).as_uri()
    try:
        find_chromium()
    except NoBrowserError as error:
        pytest.skip(f"no browser: {error}")
    with launch_browser() as browser:
        backgrounds = set()
        for dark, width in ((False, 1280), (True, 1280), (False, 390)):
            with open_page(browser, url, dark=dark, width=width, pictures=tmp_path) as seen:
                page = seen.page
                assert seen.problems == [] and seen.hosts == {""}
                assert page.evaluate("document.images.length + document.scripts.length") == 0
                # Wide tables scroll inside their box, never the page.
                assert page.evaluate("document.documentElement.scrollWidth") <= width
                assert page.locator("svg.chart").count() == 2
                assert page.locator("svg.chart").evaluate_all("all => all.every(x => x.getBBox().height > 20)")
                backgrounds.add(page.evaluate("getComputedStyle(document.body).backgroundColor"))
        assert len(backgrounds) == 2
