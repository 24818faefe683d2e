"""Expiry and orphans next to Iceberg's own procedures, warm, on a table of eight small snapshots.

`python -m tests.benchmarks.reclaiming_beside_iceberg`
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from iceberg_compact_sql.actions.context import Context
from iceberg_compact_sql.call.binding import GivenArgument, bind
from iceberg_compact_sql.call.declaration import Procedure
from iceberg_compact_sql.catalogs.session_view import SessionView
from iceberg_compact_sql.procedures.expire_snapshots import PROCEDURE as EXPIRE
from iceberg_compact_sql.procedures.remove_orphans import PROCEDURE as ORPHANS
from iceberg_compact_sql.storage.same_file import same_file_key
from tests.support.java import Lake, open_lake, start_session

ROUNDS = 3


def make(lake: Lake, name: str) -> None:
    lake.sql(f"CREATE TABLE {lake.full(name)} (id BIGINT) USING iceberg")
    for i in range(8):
        lake.sql(f"INSERT INTO {lake.full(name)} VALUES ({i})")
    root = Path(same_file_key(lake.load(name).location()).removeprefix("file:"))
    for i in range(3):
        (root / "data" / f"left{i}.parquet").write_bytes(b"")
    old = time.time() - 4 * 86_400
    for path in root.rglob("*"):
        os.utime(path, (old, old))


def ours(lake: Lake, procedure: Procedure, **named: object) -> list[tuple[Any, ...]]:
    view = SessionView(conf=lake.conf, current_catalog=lake.name, current_namespace=("db",))
    context = Context(view=view, spark=lake.spark)
    given = [GivenArgument(value, name) for name, value in named.items()]
    return procedure.run(context, bind(procedure, given, now_ms=context.now_ms, time_zone=lambda: "UTC"))


def one_round(lake: Lake, at: int) -> dict[str, float]:
    """Seconds for each of the four."""
    for name in (f"db.java{at}", f"db.ours{at}"):
        make(lake, name)
    theirs = f"CALL {lake.name}.system"
    expire = f"{theirs}.expire_snapshots(table => 'db.java{at}', older_than => TIMESTAMP '2100-01-01')"
    work: dict[str, Callable[[], object]] = {
        "orphans, Iceberg": lambda: lake.sql(f"{theirs}.remove_orphan_files(table => 'db.java{at}')").collect(),
        "orphans, ours": lambda: ours(lake, ORPHANS, table=f"db.ours{at}"),
        "expire, Iceberg": lambda: lake.sql(expire).collect(),
        "expire, ours": lambda: ours(lake, EXPIRE, table=f"db.ours{at}", older_than="2100-01-01"),
    }
    seconds = {}
    for what, run in work.items():
        start = time.perf_counter()
        run()
        seconds[what] = round(time.perf_counter() - start, 3)
    return seconds


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        spark = start_session(Path(folder))
        lake = open_lake(spark, Path(folder) / "lake")
        for at in range(ROUNDS):
            print(f"round {at}: {one_round(lake, at)}", flush=True)
        spark.stop()


if __name__ == "__main__":
    main()
