"""The real dbt on the example project, in a process of its own."""

from __future__ import annotations

import shutil
import subprocess
import sys

from tests.support.programs import ROOT, Surroundings

_EXAMPLE = ROOT / "sql_examples" / "dbt"


def run_dbt(around: Surroundings, target: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`dbt <arguments>` with a target of the example's profile; it writes into the folder of `around` only."""
    project = around.folder / "project"
    if not project.exists():
        shutil.copytree(_EXAMPLE, project)
    environment = {**around.environment, "DBT_SEND_ANONYMOUS_USAGE_STATS": "false", "NO_COLOR": "1"}
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
