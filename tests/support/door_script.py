"""What a user does on a session of their own, in a process of its own: `python -m tests.support.door_script KIND DIR`.

KIND is `plain` (classic, no Iceberg jar) or `connect` (a Connect server that pyspark starts). The last line that it
prints is a JSON object of facts for a test to judge.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
FILES = 8


def facts_of(kind: str, folder: Path) -> dict[str, Any]:
    """Run this script and give its facts."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("SPARK_", "PYSPARK_"))}
    environment |= {"PYTHONPATH": str(ROOT), "SPARK_LOCAL_IP": "127.0.0.1", "HOME": str(folder)}
    if kind == "connect":
        # A client cannot tell a server which Python its workers take; a classic session is told by `register`.
        environment["PYSPARK_PYTHON"] = sys.executable
    command = [sys.executable, "-m", "tests.support.door_script", kind, str(folder)]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-6000:]}"
    facts: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return facts | {"stderr": done.stderr}


def start(kind: str, folder: Path) -> Any:
    from pyspark.sql import SparkSession

    conf = {"spark.sql.shuffle.partitions": "2"}
    static = {
        "spark.ui.enabled": "false",
        "spark.driver.memory": "768m",
        "spark.sql.warehouse.dir": (folder / "spark-warehouse").as_uri(),
        "spark.local.dir": str(folder),
        "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    }
    builder: Any = SparkSession.builder
    builder = builder.remote("local[2]") if kind == "connect" else builder.master("local[2]")
    for key, value in (conf if kind == "connect" else {**conf, **static}).items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def make_events_table(folder: Path) -> None:
    import pyarrow as pa
    from pyiceberg.catalog.sql import SqlCatalog

    folder.mkdir()
    catalog = SqlCatalog("local", uri=f"sqlite:///{folder / 'catalog.db'}", warehouse=folder.as_uri())
    catalog.create_namespace("db")
    table = catalog.create_table("db.events", pa.schema([("id", pa.int64()), ("kind", pa.string())]))
    for number in range(FILES):
        table.append(pa.table({"id": [2 * number, 2 * number + 1], "kind": ["a", "b"]}))
    catalog.close()


def caught(action: Any) -> dict[str, Any]:
    try:
        action()
    except Exception as error:
        classes = [f"{c.__module__}.{c.__name__}" for c in type(error).__mro__]
        return {"classes": classes, "text": str(error)}
    return {"classes": [], "text": ""}


def timed_ms(action: Any) -> float:
    begun = time.perf_counter()
    action()
    return round((time.perf_counter() - begun) * 1000, 1)


def main(kind: str, folder: Path) -> None:
    import pyspark.sql  # noqa: F401 - what the package costs is measured on top of it

    facts: dict[str, Any] = {"import_ms": timed_ms(lambda: __import__("iceberg_compact_sql"))}
    import iceberg_compact_sql

    spark = start(kind, folder)
    warehouse = folder / "lake"
    facts["register_ms"] = timed_ms(lambda: iceberg_compact_sql.register(spark, warehouse=warehouse))
    facts["select"] = spark.sql("SELECT 1 AS one").collect()[0].one
    facts["parsed_select"] = "sqlglot" in sys.modules
    spark.sql("CALL help()")
    facts["help_ms"] = min(timed_ms(lambda: spark.sql("CALL help()")) for _ in range(5))
    facts["help"] = [row.procedure for row in spark.sql("CALL help()").collect()]
    make_events_table(warehouse)
    facts |= used(spark, kind)
    iceberg_compact_sql.unregister(spark)
    facts["after_unregister"] = caught(lambda: spark.sql("CALL help()").collect())
    print()
    print(json.dumps(facts))
    sys.stdout.flush()
    spark.stop()


def used(spark: Any, kind: str) -> dict[str, Any]:
    from iceberg_compact_sql import events

    facts: dict[str, Any] = {}
    name = "db.events"
    scored = "CALL score_partitions({}, target => '1MB')"
    facts["named"] = spark.sql(scored.format(":t"), args={"t": name}).collect()[0].data_files
    facts["notebook"] = "<svg" in spark.sql(scored.format(":t"), args={"t": name})._repr_html_()
    facts["positional"] = spark.sql(scored.format("?"), args=[name]).collect()[0].data_files
    facts["formatted"] = spark.sql(scored.format("{t}"), t=name).collect()[0].data_files
    # Connect has no newSession.
    other = spark.newSession() if kind == "plain" else spark
    facts["new_session"] = other.sql(f"CALL score_partitions('{name}')").collect()[0].data_files
    selected = f"SELECT count(*) AS n FROM compact_table('{name}', target => '1MB') WHERE action = 'rewrite'"
    facts["function"] = spark.sql(selected).collect()[0].n
    facts["function_error"] = caught(
        lambda: spark.sql("SELECT * FROM compact_table('db.events', targt => 1)").collect()
    )
    facts["unknown_argument"] = caught(lambda: spark.sql(f"CALL compact_table('{name}', targt => '1MB')"))
    facts["foreign"] = caught(lambda: spark.sql("CALL no_such_procedure()").collect())
    spark.conf.set("spark.iceberg_compact_sql.driver_bytes", "0")
    points: list[str] = []
    with events.listening(lambda point, _: points.append(point)):
        result = spark.sql(f"CALL compact_table('{name}', target => '1MB')")
        facts["compacted"] = result.collect()[0].asDict()
        facts["shown_again"] = result.count()
    facts["spark_jobs"], facts["plans"] = points.count("rewrite.job"), points.count("plan.done")
    expire = f"CALL expire_snapshots('{name}', older_than => current_timestamp() + INTERVAL 1 MINUTE)"
    facts["expired"] = spark.sql(expire).collect()[0].asDict()
    facts["again"] = spark.sql(f"CALL local.system.rewrite_data_files('{name}')").collect()[0].asDict()
    nothing = spark.sql(f"CALL remove_orphans('{name}')")
    facts["nothing"] = [nothing.schema.simpleString(), nothing.count()]
    facts["maintained"] = [row.outcome for row in spark.sql(f"CALL maintain_table('{name}')").collect()]
    return facts


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
