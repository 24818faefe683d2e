"""The page without a browser: what it shows, what it escapes, sign-in, roles."""

from __future__ import annotations

import re
from pathlib import Path

from iceberg_compact_sql.service.http.guard import COOKIE
from tests.support.plain import PlainLake
from tests.unit.actions.test_compact_faults import fragmented
from tests.unit.service.test_http import ADMIN, COMPACT, READER, Serve, ended, serve

__all__ = ["serve"]
POLICY = "Content-Security-Policy"
HTML = {"Accept": "text/html"}


def test_every_page_shows_its_state(serve: Serve, plain_lake: PlainLake) -> None:
    fragmented(plain_lake)
    client = serve(tables=[{"name": "db.t", "schedule": "0 3 * * *"}])
    job_id = client.post("/api/v1/compact", json=COMPACT).json()["job_id"]
    ended(client, job_id)
    client.post("/api/v1/tables/score")
    overview = client.get("/", headers=HTML).text
    for text in ("Need compaction", "plain.db.t", job_id[:8], "Jobs by day", "Run now", "Pause", "files became"):
        assert text in overview
    assert "CALL compact_table(&#39;plain.db.t&#39;, target =&gt; &#39;1MB&#39;" in client.get(f"/jobs/{job_id}").text
    assert "<svg" in client.get("/tables/plain.db.t").text
    assert "0 3 * * *" in client.get("/schedules").text and job_id[:8] in client.get("/jobs").text
    report = client.get("/api/v1/tables/db.t/report")
    assert report.status_code == 200 and "<svg" in report.text and "unsafe-inline" in report.headers[POLICY]
    missing = client.get("/tables/db.none", headers=HTML)
    assert missing.status_code == 404 and "there is no table" in missing.text
    assert client.get("/static/page.css").status_code == client.get("/static/charts.css").status_code == 200


def test_pages_have_neither_styles_nor_scripts_inside_nor_other_hosts() -> None:
    folder = Path(__file__).parents[3] / "iceberg_compact_sql" / "service"
    for path in [*(folder / "templates").iterdir(), folder / "static" / "page.js", folder / "static" / "page.css"]:
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"\sstyle=|<style|https?://|\son\w+=|javascript:", text), path
        assert "<script>" not in text and len(re.findall(r"\|\s*safe", text)) <= 2, path


def test_text_of_others_stays_text(serve: Serve, plain_lake: PlainLake) -> None:
    fragmented(plain_lake)
    client = serve()
    evil = "<img src=x onerror=alert(1)>"
    body = {"table": "db.t", "options": {"where": f"id > 1 -- {evil}"}}
    answer = client.post("/api/v1/compact", json=body)
    if answer.status_code == 202:
        assert evil not in client.get(f"/jobs/{answer.json()['job_id']}").text
    for path in (f"/tables/{evil}", f"/jobs/{evil}"):
        assert evil not in client.get(path, headers=HTML).text
    assert evil not in client.get("/", headers=HTML).text


def test_sign_in_with_a_wrong_and_a_right_token(serve: Serve, plain_lake: PlainLake) -> None:
    client = serve(server={"token": ADMIN, "read_token": READER})
    away = client.get("/", headers=HTML, follow_redirects=False)
    assert away.status_code == 303 and away.headers["Location"] == "/login"
    wrong = client.post("/login", data={"token": "wrong-token-000000000"}, headers=HTML)
    assert wrong.status_code == 401 and "This token is not known" in wrong.text
    right = client.post("/login", data={"token": READER}, follow_redirects=False)
    assert right.status_code == 303
    cookie = right.headers["Set-Cookie"]
    assert "HttpOnly" in cookie and "SameSite=strict" in cookie and READER not in cookie
    assert "Overview" in client.get("/", headers=HTML).text
    assert client.post("/api/v1/tables/score", json={}).status_code == 403


def test_the_sign_out_of_the_page_ends_the_session(serve: Serve, plain_lake: PlainLake) -> None:
    client = serve(server={"token": ADMIN})
    client.post("/login", data={"token": ADMIN})
    assert '<form method="post" action="/logout">' in client.get("/", headers=HTML).text
    session = client.cookies[COOKIE]
    # What a browser sends for a form without fields: a type, no byte, and its origin.
    form = {**HTML, "Content-Type": "application/x-www-form-urlencoded", "Origin": "http://localhost"}
    out = client.post("/logout", content=b"", headers=form, follow_redirects=False)
    assert (out.status_code, out.headers["Location"]) == (303, "/login")
    assert COOKIE not in client.cookies
    # The session is over on the server too: a copied cookie is of no use.
    copied = client.get("/api/v1/jobs", headers={"Cookie": f"{COOKIE}={session}"})
    assert copied.status_code == 401
    # A page that was left open for longer than its session, and a client that sends no type.
    for headers in (form, HTML):
        again = client.post("/logout", content=b"", headers=headers, follow_redirects=False)
        assert (again.status_code, again.headers["Location"]) == (303, "/login")
    foreign = client.post("/logout", content=b"", headers={**form, "Origin": "http://evil.example"})
    assert foreign.status_code == 403
