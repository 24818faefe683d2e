"""Jobs over HTTP: submit, list, show, cancel, history, and the audit."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request, Response
from starlette.exceptions import HTTPException

from iceberg_compact_sql.catalogs.names import parse_table_name, quote_name
from iceberg_compact_sql.errors import InvalidArgumentError, NotFoundError
from iceberg_compact_sql.service.http.access import (
    identity_of,
    origin_of,
    require_jobs,
    require_role,
    require_sight,
    service_of,
    source_of,
    visible_job,
)
from iceberg_compact_sql.service.http.models import Accepted, CompactBody, JobBody
from iceberg_compact_sql.service.jobs import FINAL, JobRequest, Status, iso_time
from iceberg_compact_sql.service.tokens import Role

router = APIRouter(prefix="/api/v1")
Key = Annotated[str | None, Header(alias="Idempotency-Key", max_length=200)]
Trace = Annotated[str | None, Header(max_length=200)]
Limit = Annotated[int, Query(ge=1, le=1000)]


@router.post("/compact", status_code=202, response_model=Accepted)
def compact(
    request: Request, response: Response, body: CompactBody, key: Key = None, traceparent: Trace = None
) -> Accepted:
    """Submit a compaction of one table."""
    require_role(request, Role.OPERATOR)
    service = require_jobs(request)
    table = _completed(body.table, body.catalog, body.namespace)
    facts = {"source": source_of(request), "traceparent": traceparent}
    checked = service.request_compaction(table, body.strategy, body.options, **facts)
    return accept(request, response, checked, key)


@router.post("/jobs", status_code=202, response_model=Accepted)
def submit(request: Request, response: Response, body: JobBody, key: Key = None, traceparent: Trace = None) -> Accepted:
    """Submit a call of any procedure."""
    require_role(request, Role.OPERATOR)
    service = require_jobs(request)
    facts = {"source": source_of(request), "traceparent": traceparent}
    if body.call is not None:
        checked = service.request_call(body.call, **facts)
    else:
        checked = service.request(body.procedure or "", body.table, body.arguments, **facts)
    return accept(request, response, checked, key)


def accept(request: Request, response: Response, checked: JobRequest, key: str | None) -> Accepted:
    """Queue a checked request; 202 for a new job, 200 for one that waited already."""
    require_sight(identity_of(request), checked.table)
    submitted = service_of(request).submit(checked, key=key, **origin_of(request))
    job = submitted.job
    response.headers["Location"] = f"/api/v1/jobs/{job.job_id}"
    if submitted.joined:
        response.status_code = 200
    return Accepted(
        job_id=job.job_id,
        status=job.status.value,
        created_at=iso_time(job.created_ms),
        estimated_duration_seconds=job.estimated_seconds,
        joined=submitted.joined,
    )


@router.get("/jobs")
def list_jobs(
    request: Request,
    status: Annotated[list[Status] | None, Query()] = None,
    table: str | None = None,
    procedure: str | None = None,
    source: str | None = None,
    idle: bool = True,
    limit: Limit = 50,
    cursor: str | None = None,
) -> dict[str, Any]:
    """Jobs, newest first; the cursor of an answer gives the next page."""
    if cursor is not None and not (cursor.isascii() and cursor.isdigit() and len(cursor) < 19):
        raise InvalidArgumentError(f"cursor {cursor[:40]!r} is not one of this service", argument="cursor")
    identity = identity_of(request)
    service = service_of(request)
    jobs, following = service.store.jobs(
        statuses=[entry.value for entry in status or ()],
        table=None if table is None else service_of(request).full_name(table),
        tables=None if identity.sees_all else identity.tables,
        procedure=procedure,
        source=source,
        idle=idle,
        limit=limit,
        before=None if cursor is None else int(cursor),
    )
    shown = [service.live(job).as_json() for job in jobs if identity.sees(job.table)]
    return {"jobs": shown, "next_cursor": None if following is None else str(following)}


@router.get("/jobs/{job_id}")
def show_job(request: Request, job_id: str) -> dict[str, Any]:
    """One job with its progress of this moment."""
    return visible_job(request, job_id).as_json()


@router.post("/jobs/{job_id}/cancel", status_code=202)
def cancel_job(request: Request, job_id: str) -> dict[str, str]:
    """Cancel a job; what it has committed stays and is reported."""
    require_role(request, Role.OPERATOR)
    visible_job(request, job_id)
    status = service_of(request).cancel(job_id, **origin_of(request))
    return {"job_id": job_id, "status": status.value}


@router.get("/history")
def history(request: Request, table: str | None = None, limit: Limit = 50) -> dict[str, Any]:
    """Finished jobs, newest first."""
    identity = identity_of(request)
    jobs, _ = service_of(request).store.jobs(
        statuses=[status.value for status in FINAL],
        table=None if table is None else service_of(request).full_name(table),
        tables=None if identity.sees_all else identity.tables,
        limit=limit,
    )
    return {"history": [job.as_json() for job in jobs if identity.sees(job.table)]}


@router.get("/history/{job_id}")
def finished_job(request: Request, job_id: str) -> dict[str, Any]:
    """One finished job; 404 until it is over, which is what waiting clients such as Airflow's sensor ask for."""
    job = visible_job(request, job_id)
    if job.status not in FINAL:
        raise NotFoundError(f"job {job_id} is not over: its status is {job.status.value}", argument="job_id")
    return job.as_json()


@router.get("/audit")
def audit(request: Request, limit: Limit = 100) -> dict[str, Any]:
    """Every change that was asked for, and what schedules fired."""
    if not identity_of(request).sees_all:
        raise HTTPException(403, "the audit is for tokens that see all tables")
    entries = service_of(request).store.audit_entries(limit)
    return {
        "audit": [
            {
                "at": iso_time(entry["at_ms"]),
                "who": entry["who"],
                "action": entry["action"],
                "detail": entry["detail"],
                "address": entry["address"],
            }
            for entry in entries
        ]
    }


def _completed(table: str, catalog: str | None, namespace: str | None) -> str:
    """The table's name with the catalog and namespace of the request, where it does not have them itself."""
    parts = parse_table_name(table)
    if namespace is not None and len(parts) == 1:
        parts = (*parse_table_name(namespace, argument="namespace"), *parts)
    if catalog is not None and parts[0] != catalog:
        parts = (catalog, *parts)
    return quote_name(parts)
