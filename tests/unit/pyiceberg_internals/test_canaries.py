"""Traps of pyiceberg 0.12 that we work around: when one of these fails, a workaround may go.

Others stand beside what they concern: commits in test_commit_canaries, null lists and paths with '#' in
test_input_files, bounds in test_metrics, position deletes in test_position_deletes, the removal of snapshots in
test_slim_avro.
"""

from __future__ import annotations

import copy
import datetime as dt
import pickle
import struct

import numpy as np
import pytest
from pyiceberg.avro.decoder import new_decoder
from pyiceberg.catalog import load_catalog
from pyiceberg.expressions.literals import literal
from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestFile, write_manifest
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.types import DecimalType, LongType, NestedField, TimestamptzType
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

from iceberg_compact_sql.pyiceberg_internals.avro import named_types as avro_names
from tests.support.handmade import add_equality_deletes, append, make_table
from tests.support.plain import PlainLake


def test_equality_deletes_cannot_be_planned(plain_lake: PlainLake) -> None:
    table = make_table(plain_lake.catalog)
    append(table, [{"id": 1, "name": "a"}])
    add_equality_deletes(table, [{"id": 1}], [1])
    with pytest.raises(ValueError, match="equality deletes"):
        list(table.refresh().scan().plan_files())


def test_v3_manifests_cannot_be_written(plain_lake: PlainLake) -> None:
    schema = Schema(NestedField(1, "id", LongType()))
    table = make_table(plain_lake.catalog)
    output = table.io.new_output(f"{table.location()}/x.avro")
    with pytest.raises(ValueError, match="version"):
        write_manifest(3, UNPARTITIONED_PARTITION_SPEC, schema, output, 1, "null")


def test_storage_cannot_be_listed_and_tables_do_not_pickle(plain_lake: PlainLake) -> None:
    assert not [name for name in dir(FileIO) if "list" in name]
    with pytest.raises((TypeError, AttributeError, pickle.PicklingError)):
        pickle.dumps(make_table(plain_lake.catalog))


def test_a_copied_manifest_record_shares_its_values() -> None:
    manifest = ManifestFile.from_args(manifest_path="a", manifest_length=1, partition_spec_id=0, sequence_number=1)
    twin = copy.copy(manifest)
    twin.sequence_number = 2
    assert manifest.sequence_number == 2


def test_naive_datetimes_are_taken_as_utc() -> None:
    naive = literal(dt.datetime(2026, 1, 1)).to(TimestamptzType())
    aware = literal(dt.datetime(2026, 1, 1, tzinfo=dt.timezone.utc)).to(TimestamptzType())
    assert naive.value == aware.value


def test_the_compiled_decoder_narrows_doubles() -> None:
    assert new_decoder(struct.pack("<d", 0.1)).read_double() == np.float32(0.1)


def test_avro_types_are_defined_twice_and_not_found_by_name() -> None:
    schema = Schema(*(NestedField(i, f"n{i}", DecimalType(9, 2), required=True) for i in (1, 2)))
    avro = avro_names._to_avro(AvroSchemaConversion(), schema, "record")
    assert avro["fields"][0]["type"]["name"] == avro["fields"][1]["type"]["name"]
    avro["fields"][1]["type"] = "decimal_9_2"
    with pytest.raises(TypeError, match="decimal_9_2"):
        avro_names._to_iceberg(AvroSchemaConversion(), avro)


def test_there_is_no_hadoop_catalog() -> None:
    with pytest.raises(ValueError, match="hadoop"):
        load_catalog("x", type="hadoop", warehouse="/nowhere")
