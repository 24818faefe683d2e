"""Ours next to Iceberg's Spark procedures, on data made here: `python -m tests.benchmarks`.

--scale N      that many times the data (1: about 15 minutes on two quiet cores)
--quick        a small run of every case, a minute and a half on two quiet cores, to see that it works
--only a,b     some cases: copy, decode, splice, shapes, deletes, streaming, tiny, growth, planning, upkeep, history,
               cluster, queries
--json FILE    the figures as JSON; --svg FILE a bar chart
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from rich.console import Console

import iceberg_compact_sql
from tests.benchmarks import chart, report
from tests.benchmarks.cluster_case import cluster_case
from tests.benchmarks.compaction_cases import (
    QUICK_BELOW,
    Bench,
    copy_case,
    decode_case,
    deletes_case,
    growth_case,
    streaming_case,
    tiny_case,
    warm_up,
)
from tests.benchmarks.measuring import Measurement
from tests.benchmarks.query_cases import QueryTime, query_times
from tests.benchmarks.shape_cases import shapes_case
from tests.benchmarks.splice_cases import splice_case
from tests.benchmarks.upkeep_cases import history_case, planning_case, upkeep_case
from tests.support.java import open_lake, start_session

CASES: dict[str, Callable[[Bench], Iterator[Measurement]]] = {
    "copy": copy_case,
    "decode": decode_case,
    "splice": splice_case,
    "shapes": shapes_case,
    "deletes": deletes_case,
    "streaming": streaming_case,
    "tiny": tiny_case,
    "growth": growth_case,
    "planning": planning_case,
    "upkeep": upkeep_case,
    "history": history_case,
    "cluster": cluster_case,
}
QUERIED = ("copy", "decode")
QUICK_SCALE = 0.02
# The session of the tests starts quickly and runs slowly: a comparison must not hold the compiler back.
SESSION = {"spark.driver.memory": "3g", "spark.driver.extraJavaOptions": "-XX:+UseG1GC"}


@dataclass
class Findings:
    """What was measured so far; written after every case, so that a run that ends early was not for nothing."""

    facts: dict[str, Any]
    scale: float
    json_path: Path | None
    svg_path: Path | None
    measurements: list[Measurement] = field(default_factory=list)
    queries: list[QueryTime] = field(default_factory=list)

    def write(self) -> None:
        """Figures of earlier runs in the same file stay, for cases that this run did not measure."""
        if self.json_path:
            document = report.as_document(self.facts, self.scale, self.measurements, self.queries)
            earlier = json.loads(self.json_path.read_text()) if self.json_path.exists() else None
            self.json_path.write_text(json.dumps(report.joined(earlier, document), indent=1) + "\n")
        if self.svg_path:
            caption = f"{self.facts['cores']} cores, Spark {self.facts['spark']}, Iceberg {self.facts['iceberg']}"
            caption += f", scale {self.scale:g}; (n×): Iceberg's time divided by ours, or one executor's by two's"
            drawn = self.measurements
            if self.json_path:
                drawn = report.measurements_in(json.loads(self.json_path.read_text()))
            self.svg_path.write_text(chart.draw(drawn, caption))


def run(names: Sequence[str], findings: Findings, console: Console) -> None:
    """The cases in their order, in one session on one folder that is gone afterwards; a session that is there stays."""
    folder = Path(tempfile.mkdtemp(prefix="benchmarks-"))
    found = SparkSession.getActiveSession()
    spark = start_session(folder / "scratch", SESSION if findings.scale >= QUICK_BELOW else {})
    known = _catalog_settings(spark)
    began = time.monotonic()

    def say(text: str) -> None:
        console.print(f"[dim]{time.monotonic() - began:6.1f}[/] {text}")

    try:
        iceberg_compact_sql.register(spark)
        lake = open_lake(spark, folder / "lake", "bench")
        bench = Bench(lake, folder, findings.scale, say)
        warm_up(bench)
        for name in CASES:
            if name in names:
                findings.measurements.extend(CASES[name](bench))
                findings.write()
            if name in QUERIED and name in names and "queries" in names:
                findings.queries.extend(query_times(bench, name))
                findings.write()
        lake.catalog.close()
    finally:
        iceberg_compact_sql.unregister(spark)
        if found is None:
            spark.stop()
        else:
            for key in _catalog_settings(spark) - known:
                spark.conf.unset(key)
        shutil.rmtree(folder, ignore_errors=True)


def _catalog_settings(spark: SparkSession) -> set[str]:
    return {key for key in spark.conf.getAll if key.startswith("spark.sql.catalog.")}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser("python -m tests.benchmarks", description=(__doc__ or "").splitlines()[0])
    known = [*CASES, "queries"]
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--quick", action="store_true", help=f"scale {QUICK_SCALE}: small files, each case once")
    parser.add_argument("--only", default=",".join(known), help="cases with commas between: %(default)s")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--svg", type=Path)
    given = parser.parse_args(arguments)
    names = given.only.split(",")
    if unknown := [name for name in names if name not in known]:
        parser.error(f"unknown case {', '.join(unknown)}; known are {', '.join(known)}")
    console = Console(width=150)
    scale = QUICK_SCALE if given.quick else given.scale
    findings = Findings(report.machine(), scale, given.json, given.svg)
    run(names, findings, console)
    report.show(console, findings.measurements, findings.queries)


if __name__ == "__main__":
    main()
