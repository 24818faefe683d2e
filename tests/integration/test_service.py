"""A service in its own process: killed at random moments no job is lost, and no row; and its page in a browser."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.browser import NoBrowserError, find_chromium, launch_browser, open_page
from tests.support.oracle import assert_readable, rows
from tests.support.plain import PlainLake
from tests.support.service import ServiceProcess
from tests.unit.actions.test_compact_faults import fragmented

COMPACT = {"table": "db.t", "options": {"target": "1MB", "rewrite_all": True, "copy": "never"}}
FINAL = ("success", "failed", "cancelled", "interrupted")


def document(lake: PlainLake, folder: Path, **more: Any) -> dict[str, Any]:
    return {"spark": {"conf": lake.conf}, "state": {"folder": str(folder / "state")}, **more}


def test_killed_at_any_moment_every_job_ends_once_and_no_row_is_lost(plain_lake: PlainLake, tmp_path: Path) -> None:
    before = rows(fragmented(plain_lake))
    settings = document(plain_lake, tmp_path)
    acknowledged: list[str] = []
    for _ in range(3):
        service = ServiceProcess(tmp_path, settings)
        for number in range(3):
            body = {**COMPACT, "options": {**COMPACT["options"], "max_files": 1000 + number}}  # type: ignore[dict-item]
            acknowledged.append(service.post("/api/v1/compact", body)["job_id"])
        time.sleep(random.random())
        service.kill()
    ended: dict[str, dict[str, Any]] = {}
    with ServiceProcess(tmp_path, settings) as service:
        for _ in range(1200):
            jobs = {job["job_id"]: job for job in service.get("/api/v1/jobs?limit=100")["jobs"]}
            ended = {job_id: job for job_id, job in jobs.items() if job["status"] in FINAL}
            if len(ended) == len(jobs):
                break
            time.sleep(0.05)
    assert set(acknowledged) == set(ended)
    assert {job["status"] for job in ended.values()} <= {"success", "interrupted"}
    table = plain_lake.load("db.t")
    assert rows(table) == before
    assert_readable(table)
    # Every snapshot of ours belongs to exactly one job, which reports it.
    reported = [snapshot for job in ended.values() for snapshot in (job["committed"] or {}).get("snapshots", [])]
    ours = [s.snapshot_id for s in table.metadata.snapshots if s.summary and s.summary.get("iceberg-compact.run-id")]
    assert sorted(reported) == sorted(ours)


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
