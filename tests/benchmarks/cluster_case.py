"""Compaction on a standalone cluster with one executor and with two, each a process with one core."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tests.benchmarks.compaction_cases import Bench
from tests.benchmarks.measuring import Measurement, measure
from tests.benchmarks.twins import data_files, data_mb, fingerprint, table_of
from tests.support.cluster import executor_python, running_driver, standalone_cluster

FILES = 200
GROUP_FILES = 5
EXECUTORS = (1, 2)


def cluster_case(bench: Bench) -> Iterator[Measurement]:
    """Forty groups of five files, everything decoded; driver, master, workers and executors are processes of their own.

    The second of two runs counts: the first starts the Python workers. There is one group an output, so that there are
    too many for the driver to do by itself, however small they are.
    """
    count = max(FILES, round(FILES * bench.scale))
    paths = bench.files("decode", count, max(2_500, round(50_000 * min(1.0, bench.scale))))
    python = executor_python(bench.folder / "executor")
    for executors in EXECUTORS:
        home = bench.folder / f"cluster-{executors}"
        home.mkdir()
        side = f"{executors} executor{'s' if executors > 1 else ''}"
        tables = [table_of(bench.lake, f"db.cluster{executors}_{turn}", paths) for turn in ("warm", "measured")]
        expected = fingerprint(bench.lake, tables[-1])
        bench.say(f"cluster: {side}")
        with (
            standalone_cluster(home, executors) as cluster,
            running_driver(cluster, home / "driver", bench.lake.conf, python) as driver,
        ):
            for name in tables:
                statement = f"CALL compact_table('{bench.lake.full(name)}', max_group_files => {GROUP_FILES})"
                cost, answer = measure("cluster", side, lambda text=statement: driver.call(text))  # type: ignore[misc]
                if "error" in answer:
                    raise SystemExit(answer["error"])
        if fingerprint(bench.lake, tables[-1]) != expected:
            raise SystemExit(f"cluster: {side} changed the rows")
        files = len(data_files(bench.lake, tables[-1]))
        yield replace(cost, output_mb=data_mb(bench.lake, tables[-1]), files=files)
