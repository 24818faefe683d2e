"""The commands `serve`, `jobs` and `submit`. Imports nothing of the extra before one of them runs."""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

import click

from iceberg_compact_sql.errors import IcebergCompactError, MissingDependencyError

_FINAL = ("success", "failed", "cancelled", "interrupted")
_URL = click.option(
    "--url", default="http://127.0.0.1:8080", show_default=True, envvar="ICEBERG_COMPACT_SQL_URL", help="The service."
)
_TOKEN_VARIABLE = "ICEBERG_COMPACT_SQL_TOKEN"


class _Failed(click.ClickException):
    """Prints only the message and exits with a code."""

    def __init__(self, message: str, exit_code: int = 1) -> None:
        super().__init__(message)
        vars(self)["exit_code"] = exit_code

    def show(self, file: Any = None) -> None:
        click.echo(self.message, err=True)


@click.command()
@click.option("--config", "path", type=click.Path(dir_okay=False), help="A YAML file.")
@click.option("--warehouse", type=click.Path(file_okay=False), help="Folder of the embedded catalog 'local'.")
@click.option("--host", help="Address to listen on (default 127.0.0.1).")
@click.option("--port", type=click.IntRange(0, 65535), help="Port to listen on (default 8080).")
@click.option("--check", is_flag=True, help="Explain the configuration as JSON and end.")
@click.option("--demo", is_flag=True, help="Create the table of the quickstart in the warehouse.")
def serve(path: str | None, warehouse: str | None, host: str | None, port: int | None, check: bool, demo: bool) -> None:
    """Run the service: jobs over HTTP, schedules, metrics and a page."""
    if path is None and warehouse is None:
        raise click.UsageError("give --config FILE or --warehouse DIR")
    try:
        from iceberg_compact_sql.service import serve as server
    except ImportError as error:
        missing = MissingDependencyError(
            f"the service needs {error.name}, which is not installed",
            hint="Run: pip install 'iceberg-compact-sql[service]'",
        )
        raise _Failed(str(missing)) from None
    try:
        config = server.read_config(path, {"warehouse": warehouse}, host=host, port=port)
        if demo and config.warehouse is None:
            raise click.UsageError("--demo needs --warehouse DIR")
        if check:
            click.echo(server.explain(config))
            return
    except IcebergCompactError as error:
        raise _Failed(str(error), 2) from None
    try:
        code = server.serve(config, demo=demo)
    except IcebergCompactError as error:
        raise _Failed(str(error)) from None
    if code:
        raise SystemExit(code)


@click.group()
def jobs() -> None:
    """Jobs of a running service."""


@jobs.command("list")
@_URL
@click.option("--status", multiple=True, help="Only jobs of this status; may be repeated.")
@click.option("--table", help="Only jobs of this table (full name).")
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True)
@click.option("--format", "style", type=click.Choice(("table", "json")), default="table", show_default=True)
def list_jobs(url: str, status: tuple[str, ...], table: str | None, limit: int, style: str) -> None:
    """List jobs, newest first."""
    query = {"status": list(status), "table": table, "limit": limit}
    found = _ask(url, "GET", "/api/v1/jobs", params={key: value for key, value in query.items() if value})["jobs"]
    if style == "json":
        click.echo(json.dumps(found, indent=2))
        return
    for job in found:
        percent = f"{(job['progress'] or {}).get('percent', 0):.0f}%"
        words = (job["job_id"], f"{job['status']:<11}", f"{percent:>4}", job["procedure"], job["table"] or "")
        click.echo("  ".join(words))


@jobs.command("show")
@_URL
@click.argument("job_id")
def show(url: str, job_id: str) -> None:
    """Show one job as JSON."""
    click.echo(json.dumps(_ask(url, "GET", f"/api/v1/jobs/{job_id}"), indent=2))


@jobs.command("cancel")
@_URL
@click.argument("job_id")
def cancel(url: str, job_id: str) -> None:
    """Cancel a job."""
    click.echo(_ask(url, "POST", f"/api/v1/jobs/{job_id}/cancel")["status"])


@jobs.command("follow")
@_URL
@click.argument("job_id")
def follow(url: str, job_id: str) -> None:
    """Follow a job with a progress bar until it is over."""
    _follow(url, job_id)


@click.command()
@click.argument("table")
@_URL
@click.option("--strategy", help="small_files, delete_files, time_series, full, or a strategy of compact_table.")
@click.option("--option", "options", multiple=True, metavar="K=V", help="An argument of compact_table.")
@click.option("--wait", is_flag=True, help="Follow the job until it is over.")
def submit(table: str, url: str, strategy: str | None, options: tuple[str, ...], wait: bool) -> None:
    """Submit a compaction of TABLE to a running service and print the id of its job."""
    given: dict[str, str] = {}
    for entry in options:
        key, separator, value = entry.partition("=")
        if not separator or not key:
            raise click.UsageError(f"--option takes key=value, not {entry!r}")
        given[key] = value
    body = {"table": table, "strategy": strategy, "options": given}
    job_id = _ask(url, "POST", "/api/v1/compact", json=body)["job_id"]
    click.echo(job_id)
    if wait:
        _follow(url, job_id)


def _follow(url: str, job_id: str) -> None:
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    from iceberg_compact_sql.report.render import console_for_people

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f}%"))
    console = console_for_people() if sys.stderr.isatty() else None
    with Progress(*columns, TimeElapsedColumn(), console=console, disable=console is None, transient=True) as bar:
        task = bar.add_task(job_id, total=100)
        while True:
            job = _ask(url, "GET", f"/api/v1/jobs/{job_id}")
            progress = job["progress"] or {}
            step = progress.get("step") or job["status"]
            bar.update(task, completed=progress.get("percent", 0), description=f"{job['table'] or job_id}: {step}")
            if job["status"] in _FINAL:
                break
            time.sleep(0.5)
    if job["status"] != "success":
        raise _Failed(f"{job['status']}: {(job['error'] or {}).get('message', '')}".strip(": "))
    click.echo(f"{job['status']}: {job['outcome'] or 'done'}")


def _ask(url: str, method: str, path: str, **request: Any) -> dict[str, Any]:
    import requests

    token = os.environ.get(_TOKEN_VARIABLE)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        answer = requests.request(method, url.rstrip("/") + path, headers=headers, timeout=60, **request)
        content: dict[str, Any] = answer.json()
    except requests.RequestException as error:
        raise _Failed(f"the service at {url} does not answer: {type(error).__name__}") from None
    if not answer.ok:
        error_text = content.get("error", {}).get("message", answer.reason)
        raise _Failed(f"{error_text} (HTTP {answer.status_code})")
    return content
