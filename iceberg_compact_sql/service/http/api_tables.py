"""Tables, schedules and events over HTTP."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import HTMLResponse

from iceberg_compact_sql.service.checks import checked_request
from iceberg_compact_sql.service.http.access import (
    identity_of,
    origin_of,
    require_jobs,
    require_role,
    require_sight,
    service_of,
)
from iceberg_compact_sql.service.http.models import Accepted, EventsBody
from iceberg_compact_sql.service.jobs import FINAL, iso_time
from iceberg_compact_sql.service.scores import score_json
from iceberg_compact_sql.service.table_facts import schedule_json, table_facts
from iceberg_compact_sql.service.tokens import Role

router = APIRouter(prefix="/api/v1")
_REPORT_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'none'"
Pattern = Annotated[str, Query(max_length=1000)]


@router.get("/tables")
def tables(request: Request, pattern: Pattern = "*") -> dict[str, Any]:
    """The last scores of the tables, worst first."""
    service, identity = service_of(request), identity_of(request)
    rows = [
        score_json(scored)
        for scored in service.scores.tables()
        if identity.sees(scored.match.shown) and _fits(scored.match.shown, pattern)
    ]
    return {"tables": rows, "scored_at": iso_time(service.scores.scored_ms)}


@router.post("/tables/score")
def score(request: Request) -> dict[str, Any]:
    """Score all tables now."""
    require_role(request, Role.ADMIN)
    service = require_jobs(request)
    service.scores.score_now()
    service.store.audit(service.queue.now_ms(), action="score", detail={}, **origin_of(request))
    return tables(request)


@router.get("/tables/{table}")
def table(request: Request, table: str) -> dict[str, Any]:
    """One table: partitions worst first, finished jobs, commits, sizes of its files, its schedules."""
    service = service_of(request)
    name = full_name(request, table)
    facts = table_facts(service, name)
    jobs, _ = service.store.jobs(statuses=[status.value for status in FINAL], table=name, limit=50)
    return {
        "table": name,
        "partitions": facts.partitions,
        "history": [job.as_json() for job in jobs],
        "commits": facts.commits[-100:][::-1],
        "sizes": facts.sizes[:100_000],
        "target_bytes": facts.target_bytes,
        "schedule": facts.schedules,
    }


@router.get("/tables/{table}/report", response_class=HTMLResponse)
def report(request: Request, table: str) -> HTMLResponse:
    """The report of one table: one HTML file without script, with a content policy of its own."""
    # Imported late for start-up time: HTTP answers before pyiceberg is loaded.
    from iceberg_compact_sql.actions.table_report import ReportRequest, table_report

    text = table_report(ReportRequest(table=full_name(request, table)), service_of(request).context())
    return HTMLResponse(text, headers={"Content-Security-Policy": _REPORT_POLICY})


def full_name(request: Request, table: str) -> str:
    """The full name of a table that exists and that the token may see."""
    checked = checked_request(service_of(request).context(), "score_partitions", table, {})
    require_sight(identity_of(request), checked.table)
    assert checked.table is not None
    return checked.table


@router.get("/schedules")
def schedules(request: Request) -> dict[str, Any]:
    """Every schedule with its next and its last run."""
    service, identity = service_of(request), identity_of(request)
    shown = service.clock.shown(service.queue.now_ms())
    return {"schedules": [schedule_json(entry) for entry in shown if _sees(identity, entry["table"])]}


@router.post("/schedules/{name}/run", status_code=202, response_model=Accepted)
def run(request: Request, response: Response, name: str) -> Accepted:
    """Run a schedule now."""
    identity = require_role(request, Role.OPERATOR)
    service = require_jobs(request)
    if not _sees(identity, service.clock.require(name).table):
        service.clock.require("")
    submitted = service.clock.run_now(name, **origin_of(request))
    response.headers["Location"] = f"/api/v1/jobs/{submitted.job.job_id}"
    if submitted.joined:
        response.status_code = 200
    return Accepted(
        job_id=submitted.job.job_id,
        status=submitted.job.status.value,
        created_at=iso_time(submitted.job.created_ms),
        estimated_duration_seconds=submitted.job.estimated_seconds,
        joined=submitted.joined,
    )


@router.post("/schedules/{name}/pause")
def pause(request: Request, name: str) -> dict[str, Any]:
    """Stop a schedule until it is resumed; survives a restart."""
    return _set_paused(request, name, paused=True)


@router.post("/schedules/{name}/resume")
def resume(request: Request, name: str) -> dict[str, Any]:
    """Let a paused schedule fire again; runs of the pause are not made up for."""
    return _set_paused(request, name, paused=False)


def _set_paused(request: Request, name: str, *, paused: bool) -> dict[str, Any]:
    require_role(request, Role.ADMIN)
    service = require_jobs(request)
    service.clock.pause(name, paused=paused)
    action = "pause" if paused else "resume"
    service.store.audit(service.queue.now_ms(), action=action, detail={"schedule": name}, **origin_of(request))
    shown = service.clock.shown(service.queue.now_ms())
    return next(schedule_json(entry) for entry in shown if entry["name"] == name)


@router.post("/events", status_code=202)
def events(request: Request, body: EventsBody) -> dict[str, int]:
    """Tables were committed to: look at them now."""
    require_role(request, Role.OPERATOR)
    service = require_jobs(request)
    names = sorted({full_name(request, table) for table in body.all()})
    service.clock.look_at(names)
    detail = {"tables": names}
    service.store.audit(service.queue.now_ms(), action="events", detail=detail, **origin_of(request))
    return {"accepted": len(names)}


def _sees(identity: Any, pattern: str) -> bool:
    """Whether a token sees the schedule of this table, which may have no catalog in its name."""
    if identity.sees_all:
        return True
    return identity.sees(pattern) or any(
        fnmatchcase(f"x.{pattern}", f"x.{own.partition('.')[2]}") for own in identity.tables
    )


def _fits(name: str, pattern: str) -> bool:
    """Whether a pattern matches a full name; its catalog may be left out."""
    return fnmatchcase(name, pattern) or fnmatchcase(name.partition(".")[2], pattern)
