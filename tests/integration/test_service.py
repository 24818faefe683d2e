"""A service in its own process: killed at random moments no job is lost, and no row; and its page in a browser."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.benchmarks.service_load import SHORT, measure
from tests.soak.service import soak
from tests.support.browser import NoBrowserError, find_chromium, launch_browser, open_page
from tests.support.plain import PlainLake
from tests.support.service import ServiceProcess
from tests.unit.actions.test_compact_faults import fragmented


def document(lake: PlainLake, folder: Path, **more: Any) -> dict[str, Any]:
    return {"spark": {"conf": lake.conf}, "state": {"folder": str(folder / "state")}, **more}


def test_killed_at_any_moment_every_job_ends_once_and_no_row_is_lost(tmp_path: Path, seed: int) -> None:
    found = soak(tmp_path, rounds=3, seconds=0, seed=seed)
    assert found["kills of the service"] == 3 and found["jobs success"] > 0


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_a_long_soak_with_spark(tmp_path: Path, seed: int) -> None:
    found = soak(tmp_path, rounds=None, seconds=900, seed=seed, with_spark=True)
    assert found["kills of Spark"] > 0 and found["commits"] > 0


def test_a_short_load_is_answered_and_every_job_ends(tmp_path: Path) -> None:
    figures = measure(tmp_path, SHORT, with_spark=False)
    assert figures["read_ms"]["count"] > 0 and figures["submit_ms"]["count"] == SHORT.submits


def test_the_page_in_a_browser(plain_lake: PlainLake, tmp_path: Path) -> None:
    fragmented(plain_lake)
    token = "browser-token-0123456789"
    tables = [{"name": "db.t", "schedule": "0 3 * * *", "options": {"target": "1MB", "min_input_files": 2}}]
    settings = document(plain_lake, tmp_path, server={"token": token}, tables=tables)
    try:
        find_chromium()
    except NoBrowserError as error:
        pytest.skip(f"no browser: {error}")
    with (
        ServiceProcess(tmp_path, settings) as service,
        launch_browser() as browser,
        open_page(browser, service.url, pictures=tmp_path) as seen,
    ):
        page = seen.page
        page.fill("#token", "wrong-token-0123456789")
        page.click("button.main")
        page.wait_for_selector("text=This token is not known")
        # The browser reports the 401 of the wrong token; nothing else may fail.
        assert all("401" in problem for problem in seen.problems)
        seen.problems.clear()
        page.fill("#token", token)
        page.click("button.main")
        page.wait_for_selector("#live.on")
        page.click("button[aria-label='Compact plain.db.t']")
        page.wait_for_selector("#message.done")
        page.wait_for_selector("#jobs .tag.success", timeout=60_000)
        page.click("button[aria-label='Pause db.t']")
        page.wait_for_selector("button[aria-label='Resume db.t']")
        page.click("#jobs tbody a")
        page.wait_for_selector("text=CALL compact_table(")
        page.set_viewport_size({"width": 390, "height": 800})
        page.goto(service.url)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        page.click("text=Sign out")
        page.wait_for_selector("#token")
        page.goto(service.url)
        page.wait_for_selector("#token")
        assert seen.problems == [] and seen.hosts == {service.url.removeprefix("http://")}
