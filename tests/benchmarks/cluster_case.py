"""Compaction on a standalone cluster with one executor and with two, each a process with one core."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tests.benchmarks.compaction_cases import Bench
from tests.benchmarks.measuring import Measurement, measure
from tests.benchmarks.twins import data_files, data_mb, fingerprint, table_of
from tests.support.cluster import executor_python, running_driver, standalone_cluster

FILES, GROUP_FILES = 200, 5
QUICK_FILES, QUICK_GROUP_FILES = 66, 2
EXECUTORS = (1, 2)


def cluster_case(bench: Bench) -> Iterator[Measurement]:
    """Forty groups of five files, everything decoded; driver, master, workers and executors are processes of their own.

    The second of two runs counts: the first starts the Python workers. There is one group an output, so that there are
    too many for the driver to do by itself, however small they are. A quick run makes one run of 33 groups.
    """
    turns: tuple[str, ...]
    if bench.quick:
        paths = bench.files("cluster", QUICK_FILES, 500)
        group_files, turns = QUICK_GROUP_FILES, ("measured",)
    else:
        rows = round(50_000 * min(1.0, bench.scale))
        paths = bench.files("decode", max(FILES, round(FILES * bench.scale)), rows)
        group_files, turns = GROUP_FILES, ("warm", "measured")
    python = executor_python(bench.folder / "executor")
    for executors in EXECUTORS:
        home = bench.folder / f"cluster-{executors}"
        home.mkdir()
        side = f"{executors} executor{'s' if executors > 1 else ''}"
        tables = [table_of(bench.lake, f"db.cluster{executors}_{turn}", paths) for turn in turns]
        expected = fingerprint(bench.lake, tables[-1])
        bench.say(f"cluster: {side}")
        with (
            standalone_cluster(home, executors) as cluster,
            running_driver(cluster, home / "driver", bench.lake.conf, python) as driver,
        ):
            for name in tables:
                sizes = f"max_group_files => {group_files}, min_input_files => {group_files}"
                statement = f"CALL compact_table('{bench.lake.full(name)}', {sizes})"
                cost, answer = measure("cluster", side, lambda text=statement: driver.call(text))  # type: ignore[misc]
                if "error" in answer:
                    raise SystemExit(answer["error"])
        if fingerprint(bench.lake, tables[-1]) != expected:
            raise SystemExit(f"cluster: {side} changed the rows")
        files = len(data_files(bench.lake, tables[-1]))
        yield replace(cost, output_mb=data_mb(bench.lake, tables[-1]), files=files)
