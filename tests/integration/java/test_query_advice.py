"""advise with real query logs: what Spark ran is read rightly, and a real clustering then reads what was predicted."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import iceberg_compact_sql
from iceberg_compact_sql.actions.queries.query_log import read_query_log
from iceberg_compact_sql.errors import IcebergCompactError
from iceberg_compact_sql.plan.queries.scans import LogFacts, read_events, read_scans
from iceberg_compact_sql.rewrite.clustering.curves import hilbert
from iceberg_compact_sql.storage.event_logs import find_logs, open_log
from iceberg_compact_sql.storage.stores import stores_of
from tests.support.event_logs import event_log
from tests.support.java import Lake

ROWS, FILES = 32_000, 16
SECRET = "s3cret-word"
FORMS = [(None, False), ("zstd", False), ("lz4", False), ("snappy", False), ("zstd", True)]


@pytest.fixture(autouse=True)
def registered(lake: Lake) -> Iterator[None]:
    iceberg_compact_sql.register(lake.spark)
    yield
    iceberg_compact_sql.unregister(lake.spark)


def make_rows() -> pa.Table:
    draw = np.random.default_rng(3)
    return pa.table(
        {
            "a": draw.integers(0, 100_000, ROWS),
            "b": draw.integers(0, 1_000_000_000, ROWS),
            "word": pa.array([f"w{number}" for number in draw.integers(0, 50, ROWS)]),
        }
    )


def write(lake: Lake, name: str, rows: pa.Table) -> None:
    """The rows in their order as equal files, one commit each with pyiceberg."""
    table = lake.catalog.create_table(name, rows.schema)
    size = ROWS // FILES
    with table.transaction() as transaction:
        for index in range(FILES):
            transaction.append(rows.slice(index * size, size))


def queries(rows: pa.Table) -> list[str]:
    draw = np.random.default_rng(4)
    some = [rows.slice(int(index), 1).to_pylist()[0] for index in draw.integers(0, ROWS, 9)]
    found = [f"a = {row['a']}" for row in some[:3]]
    found += [f"b >= {row['b']} AND b < {row['b'] + 40_000_000}" for row in some[3:6]]
    return found + [f"a BETWEEN {row['a']} AND {row['a'] + 4000} AND b > {row['b']}" for row in some[6:]]


def run(lake: Lake, name: str, filters: list[str]) -> None:
    for text in filters:
        lake.spark.sql(f"SELECT sum(a + b) FROM {lake.full(name)} WHERE {text}").collect()


def files_planned(lake: Lake, name: str, folder: Path) -> float:
    """The share of files that Iceberg planned for the scans in a log, on average."""
    stores = stores_of(lake.load(name).io)
    [[path]] = find_logs(stores, str(folder))
    with open_log(stores, path) as stream:
        scans = list(read_scans(read_events(stream), name, LogFacts()))
    return sum(scan.files or 0 for scan in scans) / len(scans) / FILES


def predicted(rows: list, action: str) -> float:
    [row] = [row for row in rows if row["topic"] == "queries" and action in row["action"]]
    match = re.search(r"would read ([\d.]+)% of the table instead of ([\d.]+)%", row["finding"])
    assert match is not None
    return float(match[1]) / 100


def test_the_prediction_is_what_iceberg_plans_after_a_real_clustering(lake: Lake, tmp_path: Path) -> None:
    rows = make_rows()
    write(lake, "db.t", rows)
    filters = queries(rows)
    with event_log(lake.spark, tmp_path / "before"):
        run(lake, "db.t", filters)
    advice = lake.spark.sql(f"CALL advise('{lake.full('db.t')}', queries => '{tmp_path / 'before'}')").collect()
    by_curve = predicted(advice, "strategy => 'hilbert', sort_order => 'a, b'")
    by_sort = predicted(advice, "strategy => 'sort', sort_order => 'a'")
    assert files_planned(lake, "db.t", tmp_path / "before") == pytest.approx(1.0)
    ranks = [np.argsort(np.argsort(rows[name].to_numpy())) * 1024 // ROWS for name in ("a", "b")]
    write(lake, "db.curve", rows.take(np.argsort(hilbert([rank.astype(np.uint32) for rank in ranks], 10))))
    write(lake, "db.sorted", rows.sort_by("a"))
    for name, share in (("db.curve", by_curve), ("db.sorted", by_sort)):
        with event_log(lake.spark, tmp_path / name):
            run(lake, name, filters)
        assert share == pytest.approx(files_planned(lake, name, tmp_path / name), rel=0.2), name
    # The curve suits both columns: it is the best row, and comes before the sorts.
    best = next(row for row in advice if row["topic"] == "queries")
    assert "hilbert" in best["action"] and "not read a day" in best["gain"] and best["cost"] > 0


def test_every_form_of_a_log_gives_the_same_scans(lake: Lake, tmp_path: Path) -> None:
    write(lake, "db.t", make_rows())
    table = lake.load("db.t")
    seen = []
    for codec, rolling in FORMS:
        with event_log(lake.spark, tmp_path / f"{codec}{rolling}", codec, rolling=rolling) as folder:
            frame = lake.spark.sql(f"SELECT count(a) FROM {lake.full('db.t')} WHERE word = '{SECRET}' AND a < 500")
            frame.collect()
            lake.spark.sql(f"SELECT * FROM {lake.full('db.t')} WHERE word IN ('w1', 'it''s') OR b IS NULL").collect()
            lake.spark.sql(f"SELECT * FROM {lake.full('db.t')}.files").collect()
        log = read_query_log(table, ("db", "t"), str(folder))
        seen.append((log.scans, log.not_understood, sorted(log.bytes_by_shape)))
        assert SECRET not in repr(log) and SECRET not in repr(list(log.workload.asked))
    assert seen == [(2, 0, ["a (range), word (equality)", "b (null), word (in)"])] * len(FORMS)
    # All of them together, and cut in the middle: what is whole counts.
    for path in tmp_path.rglob("*"):
        if path.is_file() and "appstatus" not in path.name and path.suffix in (".lz4", ".snappy"):
            path.write_bytes(path.read_bytes()[:-50])
    text = f"CALL advise('{lake.full('db.t')}', queries => '{tmp_path}', sample => false)"
    rows = lake.spark.sql(text).collect()
    assert SECRET not in str(rows) and any("rough: by bounds alone" in row["finding"] for row in rows)
    lake.catalog.create_table("db.other", make_rows().schema)
    with pytest.raises(IcebergCompactError, match=r"no query in .* reads db.other") as raised:
        lake.spark.sql(f"CALL advise('{lake.full('db.other')}', queries => '{tmp_path}')")
    assert lake.full("db.t") in str(raised.value) and SECRET not in str(raised.value)
