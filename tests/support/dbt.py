"""The real dbt on the example project, in a process of its own."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from tests.support.programs import ROOT, Surroundings

_QUICK_START = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
_EXAMPLE = ROOT / "sql_examples" / "dbt"


def copy_project(around: Surroundings) -> Path:
    """The example project in the folder of `around`, copied there once."""
    project = around.folder / "project"
    if not project.exists():
        shutil.copytree(_EXAMPLE, project)
    return project


def run_dbt(around: Surroundings, target: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`dbt <arguments>` with a target of the example's profile; it writes into the folder of `around` only."""
    project = copy_project(around)
    environment = {**around.environment, "DBT_SEND_ANONYMOUS_USAGE_STATS": "false", "JAVA_TOOL_OPTIONS": _QUICK_START}
    command = [sys.executable, "-m", "dbt.cli.main", "--no-use-colors", "--no-version-check", *arguments]
    return subprocess.run(
        [*command, "--profiles-dir", str(project), "--project-dir", str(project), "--target", target],
        cwd=around.folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
