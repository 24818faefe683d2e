"""The benchmarks keep running: a very small one, and what it writes."""

from __future__ import annotations

import json
import tempfile
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.benchmarks.__main__ import main


@pytest.mark.timeout(280)
def test_a_small_benchmark_gives_figures_and_a_chart(
    java_spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    figures, picture = tmp_path / "figures.json", tmp_path / "chart.svg"
    command = ["--scale", "0.001", "--only", "tiny,upkeep,history"]
    main([*command, "--json", str(figures), "--svg", str(picture)])
    # The session goes on without the catalogs of the run.
    assert not [key for key in java_spark.conf.getAll if key.endswith(("catalog.bench.uri", "catalog.history.uri"))]
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
