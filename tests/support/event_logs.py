"""Real Spark event logs of a part of a session: Spark's own listener, attached while the block runs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession


@contextlib.contextmanager
def event_log(spark: SparkSession, folder: Path, codec: str | None = None, *, rolling: bool = False) -> Iterator[Path]:
    """Write what the session does in the block as an event log; yields the folder, complete afterwards."""
    folder.mkdir(parents=True, exist_ok=True)
    anyway: Any = spark
    jvm, context = anyway._jvm, anyway.sparkContext._jsc.sc()
    conf = context.getConf().clone()
    conf.set("spark.eventLog.compress", "true" if codec else "false")
    conf.set("spark.eventLog.rolling.enabled", "true" if rolling else "false")
    if codec:
        conf.set("spark.eventLog.compression.codec", codec)
    listener = jvm.org.apache.spark.scheduler.EventLoggingListener(
        context.applicationId(), jvm.scala.Option.empty(), jvm.java.net.URI(folder.as_uri()), conf
    )
    listener.start()
    context.addSparkListener(listener)
    try:
        yield folder
    finally:
        context.listenerBus().waitUntilEmpty()
        context.removeSparkListener(listener)
        listener.stop()
