"""The benchmarks keep running: a very small one, and what it writes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.timeout(280)
def test_a_small_benchmark_gives_figures_and_a_chart(tmp_path: Path) -> None:
    figures, picture = tmp_path / "figures.json", tmp_path / "chart.svg"
    command = [sys.executable, "-m", "tests.benchmarks", "--scale", "0.001", "--only", "tiny,upkeep,history"]
    done = subprocess.run(
        [*command, "--json", str(figures), "--svg", str(picture)],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=270,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    document = json.loads(figures.read_text())
    measured = {(row["case"], row["side"]): row for row in document["measurements"]}
    for case in ("tiny", "manifests", "expire", "orphans"):
        ours, iceberg = measured[case, "ours"], measured[case, "iceberg"]
        assert min(ours["wall_s"], ours["cpu_s"], ours["peak_mb"], iceberg["wall_s"], iceberg["cpu_s"]) > 0
        assert ours["wall_times_less"] == pytest.approx(iceberg["wall_s"] / ours["wall_s"], rel=0.01)
    assert measured["tiny", "ours"]["files"] == measured["tiny", "iceberg"]["files"] == 1
    texts = [element.text for element in ElementTree.parse(picture).iter() if element.tag.endswith("text")]
    assert "expire" in texts
    assert not list(tmp_path.glob("benchmarks-*"))
