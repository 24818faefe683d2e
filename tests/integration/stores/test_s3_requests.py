"""How many requests each procedure makes on S3, of which kind, and how many of them at the same time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

from iceberg_compact_sql.catalogs.open_table import close_catalogs
from iceberg_compact_sql.errors import IcebergCompactError
from tests.support.calls import call
from tests.support.counting_proxy import CountingProxy
from tests.support.plain import PlainLake, open_plain
from tests.support.s3 import S3Server

PARTITIONS = 5
SNAPSHOTS = 6
FILES = PARTITIONS * SNAPSHOTS
SCHEMA = Schema(
    NestedField(1, "id", LongType()), NestedField(2, "part", LongType()), NestedField(3, "text", StringType())
)
SPEC = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "part"))
EXPIRE = "CALL expire_snapshots('db.t', retain_last => 1, older_than => TIMESTAMP '2100-01-01 00:00:00')"


@pytest.fixture
def proxy(s3_server: S3Server) -> Iterator[CountingProxy]:
    with CountingProxy(s3_server.endpoint, delay_ms=40) as running:
        yield running


@pytest.fixture
def lake(tmp_path: Path, s3_server: S3Server, proxy: CountingProxy) -> Iterator[PlainLake]:
    """A catalog on S3. The product reaches S3 through the proxy, the test itself directly."""
    warehouse = f"s3://{s3_server.bucket}/{tmp_path.name}"
    with open_plain(tmp_path / "plain", s3_server.properties, warehouse=warehouse) as made:
        made.conf["spark.sql.catalog.plain.s3.endpoint"] = proxy.endpoint
        yield made
    close_catalogs()


def make_small_files(lake: PlainLake, snapshots: int = SNAPSHOTS) -> Table:
    table = lake.catalog.create_table("db.t", SCHEMA, partition_spec=SPEC)
    for number in range(snapshots):
        ids = range(number * 100, number * 100 + 100)
        rows = {"id": list(ids), "part": [i % PARTITIONS for i in ids], "text": [f"row {i}" for i in ids]}
        table.append(pa.table(rows, schema=SCHEMA.as_arrow()))
    return table


def make_large_files(lake: PlainLake, files: int, megabytes: int) -> Table:
    """Files of one row group each, of random bytes, so that the files have the size of their rows."""
    schema = pa.schema([("id", pa.int64()), ("text", pa.large_binary())])
    table = lake.catalog.create_table("db.t", schema)
    random = np.random.default_rng(7)
    for _ in range(files):
        rows = megabytes * 1024
        table.append(pa.table({"id": range(rows), "text": [random.bytes(1024) for _ in range(rows)]}, schema=schema))
    return table


def ids(lake: PlainLake) -> list[int]:
    return sorted(lake.load("db.t").scan(selected_fields=("id",)).to_arrow()["id"].to_pylist())


def test_a_compaction_of_small_files_reads_and_writes_each_file_with_one_request(
    lake: PlainLake, proxy: CountingProxy
) -> None:
    make_small_files(lake)
    before = ids(lake)
    (row,) = call(lake, "CALL compact_table('db.t')")
    assert (row["rewritten_data_files_count"], row["added_data_files_count"]) == (FILES, PARTITIONS)
    assert proxy.counts() == {
        "GET data": FILES,
        "GET manifest": SNAPSHOTS,
        "GET manifest list": 1,
        "GET metadata.json": 1,
        # pyiceberg checks that the new metadata file does not exist.
        "HEAD metadata.json": 1,
        "PUT data": PARTITIONS,
        "PUT manifest": SNAPSHOTS + 1,
        "PUT manifest list": 1,
        "PUT metadata.json": 1,
    }
    assert proxy.most_in_flight > 8
    assert ids(lake) == before


@pytest.mark.parametrize("requests", [1, 3])
def test_the_setting_limits_the_requests_in_flight(lake: PlainLake, proxy: CountingProxy, requests: int) -> None:
    make_small_files(lake, snapshots=5)
    limited = replace(lake, conf={**lake.conf, "spark.iceberg_compact_sql.requests": str(requests)})
    for sql in ("CALL compact_table('db.t')", "CALL rewrite_manifests('db.t')", EXPIRE, "CALL remove_orphans('db.t')"):
        call(limited, sql)
        assert 0 < proxy.most_in_flight <= requests, sql
        proxy.reset()
    assert ids(lake) == list(range(500))


@pytest.mark.parametrize("requests", ["0", "-1", "many", "1_0", "1001"])
def test_a_limit_that_is_no_number_of_requests_is_refused(lake: PlainLake, requests: str) -> None:
    limited = replace(lake, conf={**lake.conf, "spark.iceberg_compact_sql.requests": requests})
    with pytest.raises(IcebergCompactError, match="must be a whole number from 1 to 1000"):
        call(limited, "CALL compact_table('db.t')")


def test_manifests_are_rewritten_with_one_request_for_each_and_all_at_once(
    lake: PlainLake, proxy: CountingProxy
) -> None:
    make_small_files(lake, snapshots=12)
    (row,) = call(lake, "CALL rewrite_manifests('db.t')")
    assert (row["rewritten_manifests_count"], row["added_manifests_count"]) == (12, 1)
    assert proxy.counts() == {
        "GET manifest": 12,
        "GET manifest list": 1,
        "GET metadata.json": 1,
        "HEAD metadata.json": 1,
        "PUT manifest": 1,
        "PUT manifest list": 1,
        "PUT metadata.json": 1,
    }
    assert proxy.most_in_flight > 8
    assert ids(lake) == list(range(1200))


def test_an_output_above_the_size_of_one_part_is_uploaded_in_parts_and_not_read_back(
    lake: PlainLake, proxy: CountingProxy
) -> None:
    table = make_large_files(lake, files=2, megabytes=10)
    input_bytes = sum(task.file.file_size_in_bytes for task in table.scan().plan_files())
    (row,) = call(lake, "CALL compact_table('db.t', rewrite_all => true)")
    assert (row["rewritten_data_files_count"], row["added_data_files_count"]) == (2, 1)
    assert proxy.counts()["PUT data multipart"] == 3
    assert proxy.counts()["POST data multipart"] == 2
    assert input_bytes <= proxy.read_bytes <= 1.1 * input_bytes
    assert len(ids(lake)) == 2 * 10 * 1024


def test_a_store_that_throttles_now_and_then_is_asked_again(lake: PlainLake, proxy: CountingProxy) -> None:
    make_small_files(lake)
    before = ids(lake)
    proxy.refuse = lambda kind, number: 503 if number % 10 == 1 else None
    (row,) = call(lake, "CALL compact_table('db.t')")
    assert row["rewritten_data_files_count"] == FILES
    assert proxy.counts()["GET data"] > FILES
    assert ids(lake) == before


READS = ("GET", "HEAD", "LIST")


def estimated(lake: PlainLake, sql: str, column: str) -> tuple[float, float]:
    """The reads and writes that the dollars stand for: one request of a kind costs a dollar, all else nothing."""
    free = {f"spark.iceberg_compact_sql.price.{name}": "0" for name in ("get_per_1000", "put_per_1000", "gb_second")}
    sums = []
    for name in ("get_per_1000", "put_per_1000"):
        prices = {**free, f"spark.iceberg_compact_sql.price.{name}": "1000"}
        rows = call(replace(lake, conf={**lake.conf, **prices}), sql)
        sums.append(sum(row[column] or 0 for row in rows))
    return sums[0], sums[1]


@pytest.mark.parametrize("shape", ["small", "large copied", "large decoded"])
def test_the_estimated_cost_counts_the_requests_that_are_made(
    lake: PlainLake, proxy: CountingProxy, shape: str
) -> None:
    proxy.delay_s = 0
    arguments = "'db.t', rewrite_all => true"
    if shape == "small":
        make_small_files(lake)
    else:
        make_large_files(lake, files=3, megabytes=18)
        arguments += ", copy => 'never'" if shape == "large decoded" else ""
    reads, writes = estimated(lake, f"CALL compact_table({arguments}, dry_run => true)", "estimated_cost")
    scored = estimated(lake, "CALL score_partitions('db.t')", "cost")
    proxy.reset()
    call(lake, f"CALL compact_table({arguments})")
    counted = proxy.counts()
    counted_reads = sum(count for kind, count in counted.items() if kind.startswith(READS))
    counted_writes = sum(counted.values()) - counted_reads
    assert reads == pytest.approx(counted_reads, rel=0.2), counted
    assert writes == pytest.approx(counted_writes, rel=0.2), counted
    if shape == "small":
        assert scored == pytest.approx((counted_reads, counted_writes), rel=0.2)


def test_large_files_are_opened_at_the_same_time_and_their_footers_read_once(
    lake: PlainLake, proxy: CountingProxy
) -> None:
    make_large_files(lake, files=4, megabytes=9)
    before = ids(lake)
    (row,) = call(lake, "CALL compact_table('db.t', rewrite_all => true)")
    assert row["copied_row_groups_count"] == 4
    # For each file: its footer, and blocks of 4 MB.
    assert proxy.counts()["GET data"] == 4 * (1 + 3)
    assert proxy.most_in_flight >= 4
    assert ids(lake) == before
