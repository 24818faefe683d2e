"""What a task gets to know: settings of the table and the run, and no credential that it does not need."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import BooleanType, ListType, NestedField, StringType

from iceberg_compact_sql.engine.shipping import package_archive, packed
from iceberg_compact_sql.errors import InvalidArgumentError, NotFoundError
from iceberg_compact_sql.plan.model import CompactionOptions
from iceberg_compact_sql.rewrite.job import build_job, effective_properties
from iceberg_compact_sql.rewrite.task import InputSlice, RewriteTask
from iceberg_compact_sql.rewrite.write.settings import writer_settings
from iceberg_compact_sql.storage.io_properties import io_properties
from tests.support.plain import PlainLake

OPTIONS = CompactionOptions(target_bytes=1000, min_file_bytes=750, max_file_bytes=1800)
SCHEMA = Schema(
    NestedField(1, "a", StringType()),
    NestedField(2, "tags", ListType(3, StringType())),
    NestedField(4, "flag", BooleanType()),
)


def test_a_job_is_made_of_a_table(plain_lake: PlainLake) -> None:
    table = plain_lake.create(
        "db.t", pa.table({"x": [1]}), properties={"write.parquet.compression-codec": "gzip", "owner": "me"}
    )
    job = build_job(
        table,
        options=OPTIONS,
        overrides={"compression": "snappy", "write.parquet.page-size-bytes": "4096"},
        verify="rows",
        run_id="r",
        output_spec_id=0,
        cores=3,
    )
    assert job.properties["write.parquet.compression-codec"] == "snappy"
    assert job.properties["write.parquet.page-size-bytes"] == "4096"
    assert "owner" not in job.properties
    assert (job.target_bytes, job.roll_bytes, job.min_file_bytes, job.max_file_bytes) == (1000, 1400, 750, 1800)
    assert (job.threads, job.verify, job.format_version) == (3, "rows", 2)
    assert "uri" not in job.io_properties
    with pytest.raises(NotFoundError, match="no partition spec 7"):
        build_job(table, options=OPTIONS, overrides={}, verify="rows", run_id="r", output_spec_id=7, cores=1)


def test_only_storage_properties_leave_the_driver() -> None:
    catalog = {"uri": "http://c", "token": "t", "credential": "id:secret", "s3.access-key-id": "k", "type": "rest"}
    assert io_properties(catalog) == {"s3.access-key-id": "k"}
    signing = {**catalog, "s3.signer": "S3V4RestSigner"}
    assert set(io_properties(signing)) == {"uri", "token", "s3.access-key-id", "s3.signer"}


def test_credentials_are_not_shown(plain_lake: PlainLake) -> None:
    table = plain_lake.create("db.t", pa.table({"x": [1]}))
    job = build_job(table, options=OPTIONS, overrides={}, verify="rows", run_id="r", output_spec_id=0, cores=1)
    object.__setattr__(job, "io_properties", {"s3.secret-access-key": "hush"})
    assert "hush" not in repr(job)
    assert pickle.loads(pickle.dumps(job)) == job


def test_another_codec_drops_the_level_of_the_old_one() -> None:
    table = {"write.parquet.compression-codec": "zstd", "write.parquet.compression-level": "19"}
    assert effective_properties(table, {"compression": "gzip"}) == {"write.parquet.compression-codec": "gzip"}
    assert effective_properties(table, {"compression": "zstd"}) == table
    with pytest.raises(InvalidArgumentError, match="'zap' is not a write setting"):
        effective_properties({}, {"zap": "1"})


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("compression-codec", "zap", "'write.parquet.compression-codec' is 'zap'"),
        ("compression-level", "high", "must be a number"),
        ("row-group-size-bytes", "0", "must be a number > 0"),
        ("page-size-bytes", "much", "must be a number > 0"),
    ],
)
def test_settings_that_mean_nothing_are_refused(name: str, value: str, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        writer_settings({f"write.parquet.{name}": value}, SCHEMA)


def test_settings_of_columns() -> None:
    settings = writer_settings(
        {
            "write.parquet.bloom-filter-enabled.column.tags.element": "true",
            "write.parquet.bloom-filter-enabled.column.flag": "true",
            "write.parquet.bloom-filter-enabled.column.gone": "true",
            "write.parquet.bloom-filter-enabled.column.a": "false",
            "write.parquet.compression-codec": "snappy",
            "write.parquet.compression-level": "3",
            "write.parquet.row-group-check-min-record-count": "100",
        },
        SCHEMA,
    )
    assert [bloom.column_path for bloom in settings.blooms] == ["tags.list.element"]
    assert set(settings.notes) == {
        "'write.parquet.compression-level' was not used: snappy has no levels.",
        "No bloom filter on 'flag': pyarrow writes none for booleans.",
        "'write.parquet.bloom-filter-enabled.column.gone' was not used: the table has no such column.",
    }


def test_bloom_filters_stay_within_their_limit() -> None:
    from iceberg_compact_sql.rewrite.write.settings import BloomFilter

    fitted = BloomFilter("a", 0.01, None).fitted(10**9, 1024**2)
    assert fitted["ndv"] < 10**6


def test_tasks_travel_small() -> None:
    folder = "s3://bucket/warehouse/db/events/data/day=2026-01-01"
    pieces = [InputSlice(f"{folder}/{n:05d}-1-{n * 7919:032x}.parquet", 1, 1, 0, ("x",), 1) for n in range(1000)]
    task = RewriteTask(0, 0, tuple(pieces), (), ("x",))
    assert len(packed(task)) < 200 * 1000
    assert len(package_archive()) < 1_000_000
