"""The description and the tag of Spark jobs: what the UI shows, and how a cancelled run stops its jobs."""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections.abc import Iterator
from typing import Any

from iceberg_compact_sql import events
from iceberg_compact_sql.engine.cluster import is_connect
from iceberg_compact_sql.engine.task_pool import CANCEL_CHECK_SECONDS

_JOB_DESCRIPTION = "spark.job.description"


@contextlib.contextmanager
def described(spark: Any, text: str) -> Iterator[None]:
    """Show `text` in Spark's UI for the jobs that this thread starts in the block; a Connect session cannot."""
    if is_connect(spark):
        yield
        return
    context = spark.sparkContext
    before = context.getLocalProperty(_JOB_DESCRIPTION)
    context.setLocalProperty(_JOB_DESCRIPTION, text)
    try:
        yield
    finally:
        context.setLocalProperty(_JOB_DESCRIPTION, before)


@contextlib.contextmanager
def tagged(spark: Any, tag: str) -> Iterator[None]:
    """Give the jobs that this thread starts in the block a tag, by which `interrupt` finds them."""
    # A tag of a classic session belongs to the thread that added it (Spark 4): `interruptTag` of another thread finds
    # no job. A tag of the context, and one of a Connect session, is found by its text.
    add, remove = (
        (spark.addTag, spark.removeTag)
        if is_connect(spark)
        else (spark.sparkContext.addJobTag, spark.sparkContext.removeJobTag)
    )
    add(tag)
    try:
        yield
    finally:
        remove(tag)


@contextlib.contextmanager
def interrupted_when_cancelled(spark: Any) -> Iterator[None]:
    """Cancel the jobs that this thread starts in the block when its run is cancelled, or when the block raises."""
    tag = f"iceberg-compact-{uuid.uuid4().hex}"
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(CANCEL_CHECK_SECONDS):
            if events.is_cancelled():
                # Again and again: a job may start after the first attempt.
                interrupt(spark, tag)

    with tagged(spark, tag), events.ThreadPool(1, "cancel-watch") as pool:
        pool.submit(watch)
        try:
            yield
        except BaseException:
            # Ctrl-C while the driver waits for a job: without this the job would go on.
            interrupt(spark, tag)
            raise
        finally:
            ended.set()


def interrupt(spark: Any, tag: str) -> None:
    """Cancel the jobs with this tag that run now, whichever thread started them. Later jobs are not cancelled."""
    if is_connect(spark):
        spark.interruptTag(tag)
    else:
        spark.sparkContext.cancelJobsWithTag(tag)
