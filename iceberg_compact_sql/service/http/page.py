"""The page: overview, jobs, one job, one table, schedules and sign-in, made on the server."""

from __future__ import annotations

import datetime as dt
import json
import time
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from jinja2 import Environment, FileSystemLoader, select_autoescape

from iceberg_compact_sql.report.charts import CHART_CSS, Dot, histogram, line, stacked_bars
from iceberg_compact_sql.service.http.access import identity_of, service_of, visible_job
from iceberg_compact_sql.service.http.api_jobs import list_jobs
from iceberg_compact_sql.service.http.api_tables import full_name, schedules, tables
from iceberg_compact_sql.service.http.guard import COOKIE, session_of
from iceberg_compact_sql.service.jobs import ACTIVE, Status
from iceberg_compact_sql.service.table_facts import table_facts
from iceberg_compact_sql.service.tokens import SESSION_SECONDS, Role
from iceberg_compact_sql.units import format_bytes

router = APIRouter(include_in_schema=False)
_DAY_MS = 86_400_000
_DAYS = 14
_TONES = {"success": "done", "failed": "failed", "interrupted": "failed", "cancelled": "muted"}
_NEEDS_COMPACTION = 0.3


def _when(text: str) -> str:
    """A moment relative to now: `in 3 min`, `2 h ago`."""
    seconds = dt.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp() - time.time()
    size = abs(seconds)
    if size < 60:
        shown = f"{size:.0f} s"
    elif size < 3600:
        shown = f"{size / 60:.0f} min"
    elif size < 2 * 86_400:
        shown = f"{size / 3600:.0f} h"
    else:
        shown = f"{size / 86_400:.0f} days"
    return f"in {shown}" if seconds > 0 else f"{shown} ago"


def _seconds(job: dict[str, Any]) -> str:
    if not job["started_at"]:
        return ""
    start, end = (
        time.time() if moment is None else dt.datetime.fromisoformat(moment.replace("Z", "+00:00")).timestamp()
        for moment in (job["started_at"], job["finished_at"])
    )
    return f"{max(0.0, end - start):.1f}"


def _result_line(job: dict[str, Any]) -> str:
    """The result of a job in a few words."""
    if job["error"]:
        return str(job["error"]["message"])[:160]
    if job["outcome"] == "nothing_to_do":
        return "nothing to do"
    rows = job["result"] or []
    if rows and "rewritten_data_files_count" in rows[0]:
        row = rows[0]
        return f"{row['rewritten_data_files_count']} files became {row['added_data_files_count']}"
    if job["status"] == "success":
        return f"{len(rows)} row{'' if len(rows) == 1 else 's'}"
    return ""


def _dollars(value: float | None) -> str:
    return "" if value is None else "< $0.01" if value < 0.005 else f"${value:,.2f}"


_templates = Environment(
    loader=FileSystemLoader(Path(__file__).parents[1] / "templates"), autoescape=select_autoescape(default=True)
)
_templates.filters |= {
    "bytes": lambda value: format_bytes(value or 0),
    "dollars": _dollars,
    "when": _when,
    "seconds": _seconds,
    "result_line": _result_line,
}


def render(request: Request, template: str, code: int = 200, **values: Any) -> HTMLResponse:
    """A page from its template; values are escaped."""
    identity = getattr(request.state, "identity", None)
    role = Role.VIEWER if identity is None else identity.role
    can = {"operate": role >= Role.OPERATOR, "administer": role >= Role.ADMIN}
    with_sign_out = COOKIE in request.cookies and service_of(request).tokens.required
    text = _templates.get_template(template).render(
        can=can, signed_in=identity is not None, with_sign_out=with_sign_out, **values
    )
    return HTMLResponse(text, code)


@router.get("/")
def overview(request: Request) -> HTMLResponse:
    """Figures, jobs by day, next runs, tables worst first, and the newest jobs."""
    service = service_of(request)
    listed = tables(request)
    rows = listed["tables"]
    readable = [row for row in rows if row["error"] is None]
    jobs = list_jobs(request, idle=False, limit=20)["jobs"]
    active = list_jobs(request, status=[*ACTIVE, Status.QUEUED], limit=1000)["jobs"]
    running = [job for job in active if job["status"] != "queued"]
    failed = _failed_today(request)
    needy = sum(row["score"] >= _NEEDS_COMPACTION for row in readable)
    figures = [
        ("Tables", len(rows), ""),
        ("Need compaction", needy, "warn" if needy else ""),
        ("Data files", f"{sum(row['data_files'] for row in readable):,}", ""),
        ("Files to save", f"{sum(row['files_saved'] for row in readable):,}", ""),
        ("Running / waiting", f"{len(running)} / {len(active) - len(running)}", ""),
        ("Failed in 24 h", failed, "bad" if failed else ""),
    ]
    shown = sorted(schedules(request)["schedules"], key=lambda entry: entry["next"] or "~")
    return render(
        request,
        "overview.html",
        figures=figures,
        days=_days(request),
        schedules=shown[:8],
        tables=rows,
        scored=service.scores.scored_ms is not None,
        busy={job["table"]: job["status"] for job in reversed(active)},
        jobs=jobs,
    )


def _failed_today(request: Request) -> int:
    since = dt.datetime.now(dt.timezone.utc) - dt.timedelta(days=1)
    failed = list_jobs(request, status=[Status.FAILED, Status.INTERRUPTED], limit=1000)["jobs"]
    return sum(job["created_at"] >= since.isoformat()[:19] for job in failed)


def _days(request: Request) -> str:
    today = int(time.time() * 1000) // _DAY_MS
    counts: dict[int, dict[str, float]] = {today - back: {} for back in range(_DAYS - 1, -1, -1)}
    if identity_of(request).sees_all:
        for day, status, count in service_of(request).store.jobs_by_day((today - _DAYS + 1) * _DAY_MS):
            tone = _TONES.get(status, "waiting")
            parts = counts.setdefault(day, {})
            parts[tone] = parts.get(tone, 0) + count
    first = dt.date(1970, 1, 1)
    return stacked_bars(
        "Jobs by day", [(f"{first + dt.timedelta(days=day):%d %b}", parts) for day, parts in sorted(counts.items())]
    )


@router.get("/jobs")
def jobs_page(request: Request, cursor: str | None = None, idle: bool = False) -> HTMLResponse:
    """All jobs, page by page."""
    listed = list_jobs(request, cursor=cursor, idle=idle, limit=50)
    return render(request, "jobs.html", jobs=listed["jobs"], next_cursor=listed["next_cursor"], idle=idle)


@router.get("/jobs/{job_id}")
def job_page(request: Request, job_id: str) -> HTMLResponse:
    """One job: the CALL that does the same, its steps, result and error."""
    job = visible_job(request, job_id)
    started = job.started_ms or job.created_ms
    steps = [{"step": step["step"], "seconds": (step["at_ms"] - started) / 1000} for step in job.steps or ()]
    return render(request, "job.html", job=job.as_json(), steps=steps, call=call_text(job.as_json()))


@router.get("/tables/{table}")
def table_page(request: Request, table: str) -> HTMLResponse:
    """One table: sizes, files over time, partitions, jobs, schedule, commits."""
    name = full_name(request, table)
    facts = table_facts(service_of(request), name)
    points = [(commit["committed_ms"], float(commit["total_data_files"])) for commit in facts.commits]
    dots = [
        Dot(commit["committed_ms"], commit["total_data_files"], f"compaction {commit['run_id'] or ''}".strip())
        for commit in facts.commits
        if commit["operation"] == "replace"
    ]
    sizes = histogram(
        "File sizes", facts.sizes, target_bytes=facts.target_bytes, small_below=int(facts.target_bytes * 0.75)
    )
    jobs = list_jobs(request, table=name, limit=20)["jobs"]
    over_time = line("Data files over time", points, dots=dots)
    return render(request, "table.html", facts=facts, sizes=sizes, over_time=over_time, jobs=jobs)


@router.get("/schedules")
def schedules_page(request: Request) -> HTMLResponse:
    """All schedules with their buttons."""
    return render(request, "schedules.html", schedules=schedules(request)["schedules"])


@router.get("/login")
def login_page(request: Request) -> Response:
    """The form for the token."""
    if getattr(request.state, "identity", None) is not None:
        return RedirectResponse("/", 303)
    return render(request, "login.html", wrong=False)


@router.post("/login")
async def login(request: Request) -> Response:
    """Exchange a right token for a cookie of 12 hours."""
    form = parse_qs((await request.body()).decode("utf-8", "replace"))
    service = service_of(request)
    session = service.tokens.sign_in(form.get("token", [""])[0])
    if session is None:
        return render(request, "login.html", 401, wrong=True)
    answer = RedirectResponse("/", 303)
    secure = request.url.scheme == "https"
    answer.set_cookie(COOKIE, session, SESSION_SECONDS, httponly=True, samesite="strict", secure=secure)
    return answer


@router.post("/logout")
def logout(request: Request) -> Response:
    """End the browser's session."""
    session = session_of(request.headers.get("cookie", ""))
    if session is not None:
        service_of(request).tokens.sign_out(session)
    answer = RedirectResponse("/login", 303)
    answer.delete_cookie(COOKIE)
    return answer


@router.get("/static/charts.css")
def charts_css() -> Response:
    """The colours of the charts as a file, which the content policy allows."""
    return Response(CHART_CSS, media_type="text/css")


def call_text(job: dict[str, Any]) -> str:
    """The CALL that does the same as a job.

    >>> call_text({"procedure": "compact_table", "table": "lake.db.t", "arguments": {"target": "1MB", "dry_run": True}})
    "CALL compact_table('lake.db.t', target => '1MB', dry_run => true)"
    """
    arguments = dict(job["arguments"])
    first = [] if job["table"] is None or "pattern" in arguments else [_literal(job["table"])]
    return f"CALL {job['procedure']}({', '.join([*first, *(f'{k} => {_literal(v)}' for k, v in arguments.items())])})"


def _literal(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        return str(value)
    if isinstance(value, list):
        return f"array({', '.join(map(_literal, value))})"
    if isinstance(value, dict):
        return f"map({', '.join(_literal(part) for pair in value.items() for part in pair)})"
    text = value if isinstance(value, str) else json.dumps(value)
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
