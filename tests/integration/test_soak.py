"""Writers and maintenance at once, in processes that are killed at any moment: no row is lost, doubled or risen."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run_soak(tmp_path: Path, seconds: int, seed: int) -> str:
    command = [sys.executable, "-m", "tests.soak", "--seconds", str(seconds), "--seed", str(seed)]
    done = subprocess.run(
        [*command, "--folder", str(tmp_path / "soak")],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=seconds + 240,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-6000:]
    return done.stdout


@pytest.mark.timeout(420)
def test_two_minutes_of_soak(tmp_path: Path, seed: int) -> None:
    report = run_soak(tmp_path, 120, seed)
    # It ran at all: writers landed, processes were killed, and maintenance changed the table.
    assert "compact_table: changed" in report and "expire_snapshots: changed" in report
    assert "'steps': 0" not in report and "'kills': 0" not in report


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_a_long_soak(tmp_path: Path, seed: int) -> None:
    minutes = int(os.environ.get("SOAK_MINUTES", "10"))
    report = run_soak(tmp_path, 60 * minutes, seed + 1)
    assert "rewrite_position_deletes: changed" in report and "rewrite_manifests: changed" in report
