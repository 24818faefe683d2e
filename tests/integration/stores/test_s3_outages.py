"""S3 that throttles, is slow, or is down before, during and after a run: retried, then one clear error in time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from iceberg_compact_sql.catalogs.open_table import close_catalogs
from iceberg_compact_sql.errors import IcebergCompactError, InvalidArgumentError
from tests.integration.stores.test_s3_requests import EXPIRE, ids, make_small_files
from tests.support.calls import call
from tests.support.counting_proxy import CountingProxy
from tests.support.plain import PlainLake, open_plain
from tests.support.s3 import S3Server

# A store that does not answer is an error after three attempts of this time.
LIMITS = {"connect_timeout": "1s", "answer_timeout": "500ms", "attempts": "3", "retry_time": "1s"}
# Long enough that no attempt is answered.
SILENCE_SECONDS = 20.0


@pytest.fixture
def proxy(s3_server: S3Server) -> Iterator[CountingProxy]:
    with CountingProxy(s3_server.endpoint) as running:
        yield running
        # Threads that still answer slowly must not keep the next test waiting.
        running.delay_s = 0


@pytest.fixture
def lake(tmp_path: Path, s3_server: S3Server, proxy: CountingProxy) -> Iterator[PlainLake]:
    warehouse = f"s3://{s3_server.bucket}/{tmp_path.name}"
    with open_plain(tmp_path / "plain", s3_server.properties, warehouse=warehouse) as made:
        made.conf["spark.sql.catalog.plain.s3.endpoint"] = proxy.endpoint
        made.conf.update({f"spark.iceberg_compact_sql.{name}": value for name, value in LIMITS.items()})
        yield made
    close_catalogs()


def fall_silent(proxy: CountingProxy, kind: str) -> Callable[[str, int], int | None]:
    """From the first request of a kind on, nothing is answered."""

    def refuse(asked: str, number: int) -> int | None:
        if asked == kind:
            proxy.delay_s = SILENCE_SECONDS
        return None

    return refuse


@pytest.mark.parametrize("kind", ["GET manifest", "PUT data", "PUT manifest"])
def test_a_store_that_falls_silent_is_one_clear_error(lake: PlainLake, proxy: CountingProxy, kind: str) -> None:
    """The time is that of one request, not of one request for each file; the bound is far above it."""
    make_small_files(lake)
    before = ids(lake)
    proxy.refuse = fall_silent(proxy, kind)
    began = time.monotonic()
    with pytest.raises(IcebergCompactError) as caught:
        call(lake, "CALL compact_table('db.t')")
    assert time.monotonic() - began < SILENCE_SECONDS
    assert "timeout" in str(caught.value).lower() or "did not answer" in str(caught.value)
    proxy.delay_s, proxy.refuse = 0, None
    assert ids(lake) == before


def test_a_store_that_throttles_everything_is_one_clear_error(lake: PlainLake, proxy: CountingProxy) -> None:
    sql = "CALL rewrite_manifests('db.t')"
    make_small_files(lake, snapshots=2)
    before = ids(lake)
    proxy.refuse = lambda kind, number: 503
    with pytest.raises(IcebergCompactError, match="SlowDown"):
        call(lake, sql)
    proxy.refuse = None
    assert ids(lake) == before
    call(lake, sql)
    assert ids(lake) == before


def test_a_throttled_bulk_delete_is_repeated(lake: PlainLake, proxy: CountingProxy) -> None:
    make_small_files(lake)
    call(lake, "CALL compact_table('db.t')")
    proxy.refuse = lambda kind, number: 503 if kind == "DELETE many" and number == 1 else None
    (row,) = call(lake, EXPIRE)
    assert row["failed_deletes_count"] == 0 and row["deleted_data_files_count"] > 0
    assert proxy.counts()["DELETE many"] >= 2


def test_a_server_that_is_down_is_one_clear_error(lake: PlainLake) -> None:
    make_small_files(lake, snapshots=1)
    down = replace(lake, conf={**lake.conf, "spark.sql.catalog.plain.s3.endpoint": "http://127.0.0.1:9"})
    with pytest.raises(IcebergCompactError, match="Could not connect to the endpoint"):
        call(down, "CALL compact_table('db.t')")


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        ("answer_timeout", "soon", "is not a duration"),
        ("connect_timeout", "0s", "more than 0 and at most 1 day"),
        ("retry_time", "2 days", "more than 0 and at most 1 day"),
        ("attempts", "0", "a whole number from 1 to 100"),
        ("attempts", "1_0", "a whole number from 1 to 100"),
    ],
)
def test_a_wrong_limit_is_refused(lake: PlainLake, name: str, value: str, rule: str) -> None:
    wrong = replace(lake, conf={**lake.conf, f"spark.iceberg_compact_sql.{name}": value})
    with pytest.raises(InvalidArgumentError, match=f"spark.iceberg_compact_sql.{name} is '{value}'.*{rule}"):
        call(wrong, "CALL score_partitions('db.t')")
