"""Airflow with a running service: submit a compaction over HTTP, then wait for its job without a worker.

The connection `iceberg_compact` has the address of the service, and its token as header in the extra:
{"Authorization": "Bearer <token>"}. Needs apache-airflow-providers-http and a running triggerer.
"""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

from airflow.providers.http.operators.http import HttpOperator
from airflow.providers.http.sensors.http import HttpSensor
from airflow.sdk import DAG

CONNECTION = "iceberg_compact"
TABLES = ("db.events", "db.orders")


def job_id(response: Any) -> str:
    """Return the id of the job that the service has taken."""
    return str(response.json()["job_id"])


def has_succeeded(response: Any) -> bool:
    """Return true for a job that has succeeded; raise with its own sentence when it ended in another way."""
    job = response.json()
    if job["status"] != "success":
        raise RuntimeError(f"{job['status']}: {(job['error'] or {}).get('message', '')}")
    return True


def submit(table: str) -> HttpOperator:
    """Submit the compaction; a retry of the task gets the same job by its key."""
    return HttpOperator(
        task_id=f"submit_{table.replace('.', '_')}",
        http_conn_id=CONNECTION,
        endpoint="/api/v1/compact",
        method="POST",
        data=json.dumps({"table": table, "strategy": "small_files"}),
        headers={"Content-Type": "application/json", "Idempotency-Key": "{{ run_id }}-" + table},
        response_filter=job_id,
        do_xcom_push=True,
    )


def wait(table: str, job: str) -> HttpSensor:
    """Wait in the triggerer: the history answers 404 until the job is over. A `response_check` would need a worker."""
    return HttpSensor(
        task_id=f"wait_{table.replace('.', '_')}",
        http_conn_id=CONNECTION,
        endpoint=f"/api/v1/history/{job}",
        poke_interval=60,
        timeout=6 * 3600,
        deferrable=True,
    )


def check(table: str, job: str) -> HttpOperator:
    """Fail with the sentence of a job that failed."""
    return HttpOperator(
        task_id=f"check_{table.replace('.', '_')}",
        http_conn_id=CONNECTION,
        endpoint=f"/api/v1/jobs/{job}",
        method="GET",
        response_check=has_succeeded,
    )


with DAG(
    dag_id="iceberg_compact_service",
    schedule="30 2 * * *",
    start_date=dt.datetime(2026, 1, 1, tzinfo=dt.timezone.utc),
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 1, "retry_delay": dt.timedelta(minutes=5)},
) as dag:
    for table in TABLES:
        submitted = submit(table)
        job = "{{ ti.xcom_pull(task_ids='" + submitted.task_id + "') }}"
        submitted >> wait(table, job) >> check(table, job)
