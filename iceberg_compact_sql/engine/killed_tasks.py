"""Waits for attempts that Spark has killed: they may go on writing for some seconds."""

from __future__ import annotations

import time
from typing import Any

from iceberg_compact_sql.engine.cluster import Cluster

# Spark checks every 2 s whether a task was killed, and gives its Python worker 2 s (spark.python.task.killTimeout).
_KILL_SECONDS = 6.0


def await_killed_tasks(spark: Any, cluster: Cluster, *, cancelled: bool) -> None:
    """Wait until killed attempts have stopped writing, so that the search for lost files finds all their files.

    Spark kills the Python worker of an attempt some seconds after its task. Tasks of other jobs can prolong this
    wait only up to the same limit. A Connect session cannot list running tasks: after it cancelled a job it waits
    for the longest time that Spark needs.
    """
    deadline = time.monotonic() + _KILL_SECONDS
    if cluster.is_connect:
        if cancelled:
            time.sleep(_KILL_SECONDS)
        return
    tracker = spark.sparkContext._jsc.sc().statusTracker()
    while any(executor.numRunningTasks() for executor in tracker.getExecutorInfos()):
        if time.monotonic() > deadline:
            return
        time.sleep(0.05)
