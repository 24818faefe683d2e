"""Clustering as users call it: order, depth, second runs, new data, deletes, partitions, branches, properties."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DoubleType, LongType, NestedField

from iceberg_compact_sql import events
from iceberg_compact_sql.errors import IcebergCompactError, InvalidArgumentError
from iceberg_compact_sql.plan.model import CompactionOptions
from iceberg_compact_sql.plan.packing import expected_outputs
from tests.support.calls import call
from tests.support.handmade import add_position_deletes, data_paths
from tests.support.oracle import rows
from tests.support.plain import PlainLake
from tests.support.rewriting import local

ROWS = 6000
KB = 1024


def batch(number: int) -> pa.Table:
    random = np.random.default_rng(number)
    keys = random.integers(0, 1000, ROWS)
    return pa.table(
        {
            "k": pa.array(keys, mask=random.random(ROWS) < 0.05),
            "id": random.permutation(ROWS) + number * ROWS,
            "x": random.random(ROWS),
        }
    )


def filled(lake: PlainLake, files: int = 6) -> Table:
    return lake.create("db.t", *(batch(number) for number in range(files)))


def file_rows(table: Table) -> list[list[dict[str, Any]]]:
    paths = table.refresh().inspect.files()["file_path"].to_pylist()
    found = [pq.ParquetFile(local(path)).read().to_pylist() for path in paths]
    return sorted(found, key=lambda rows: (rows[0]["k"] is not None, rows[0]["k"] or 0, -rows[0]["id"]))


def key(row: dict[str, Any]) -> tuple[bool, int, int]:
    return row["k"] is not None, row["k"] or 0, -row["id"]


SORT = "CALL compact_table('db.t', sort_order => 'K, id DESC', target => '150KB')"


def test_a_table_is_sorted_once_and_new_data_costs_what_it_is(plain_lake: PlainLake) -> None:
    table = filled(plain_lake)
    before = rows(table)
    [planned] = call(plain_lake, SORT.replace(")", ", dry_run => true)"))
    assert planned["action"] == "rewrite"
    assert planned["depth"] == 6.0
    assert "depth 6.0 above max_depth 4: clustered into" in planned["reason"]
    [result] = call(plain_lake, SORT)
    assert (result["rewritten_data_files_count"], result["rows_count"]) == (6, 6 * ROWS)
    assert (result["depth_before"], result["depth_after"]) == (6.0, 1.0)
    files = file_rows(table)
    assert len(files) == result["added_data_files_count"] > 2
    in_order = [row for file in files for row in file]
    assert in_order == sorted(in_order, key=key)
    assert rows(table.refresh()) == before
    [again] = call(plain_lake, SORT)
    assert (again["commits_count"], again["snapshot_id"]) == (0, None)
    assert (again["depth_before"], again["depth_after"]) == (1.0, 1.0)
    table.append(batch(10))
    [after] = call(plain_lake, SORT)
    assert after["commits_count"] == 0
    for number in range(11, 15):
        table.append(batch(number))
    [deep] = call(plain_lake, SORT)
    assert deep["commits_count"] == 1
    assert deep["depth_after"] < deep["depth_before"]
    assert len(rows(table.refresh())) == 11 * ROWS


@pytest.mark.parametrize("curve", ["zorder", "hilbert"])
def test_a_curve_meets_fewer_files_in_both_columns(plain_lake: PlainLake, curve: str) -> None:
    table = filled(plain_lake, 8)
    before = rows(table)
    sql = f"CALL compact_table('db.t', sort_order => '{curve}(k, X)', target => '50KB')"
    [result] = call(plain_lake, sql)
    assert result["commits_count"] == 1
    files = file_rows(table)
    assert len(files) >= 8
    for column in ("k", "x"):
        values = [[row[column] for row in file if row[column] is not None] for file in files]
        ranges = [(min(found), max(found)) for found in values]
        points = np.random.default_rng(1).choice(np.concatenate(values), 50)
        met = np.mean([sum(low <= point <= high for low, high in ranges) for point in points])
        assert met < 0.75 * len(files)
    assert rows(table.refresh()) == before
    [again] = call(plain_lake, sql)
    assert again["commits_count"] == 0
    assert set(table.refresh().inspect.files()["sort_order_id"].to_pylist()) == {0}


def test_the_tables_own_order_and_its_id(plain_lake: PlainLake) -> None:
    order = SortOrder(
        SortField(1, transform=IdentityTransform(), direction=SortDirection.DESC, null_order=NullOrder.NULLS_LAST)
    )
    schema = Schema(
        NestedField(1, "k", LongType()), NestedField(2, "id", LongType()), NestedField(3, "x", DoubleType())
    )
    table = plain_lake.catalog.create_table("db.t", schema, sort_order=order)
    for number in range(6):
        table.append(batch(number))
    call(plain_lake, "CALL compact_table('db.t', strategy => 'sort')")
    [file] = file_rows(table)
    keys = [row["k"] for row in file]
    assert keys == sorted(keys, key=lambda k: (k is None, -(k or 0)))
    assert table.refresh().inspect.files()["sort_order_id"].to_pylist() == [1]
    call(plain_lake, "CALL compact_table('db.t', sort_order => 'k', rewrite_all => true)")
    assert table.refresh().inspect.files()["sort_order_id"].to_pylist() == [0]


def test_icebergs_form_selects_by_size_only_unless_it_is_told(plain_lake: PlainLake) -> None:
    table = filled(plain_lake, 3)
    size = int(np.mean(table.inspect.files()["file_size_in_bytes"].to_pylist()))
    options = f"'target-file-size-bytes', '{size}'"
    sql = "CALL plain.system.rewrite_data_files(table => 'db.t', sort_order => 'k', options => map({}))"
    [result] = call(plain_lake, sql.format(options))
    assert list(result)[-1] == "removed_delete_files_count"
    assert result["rewritten_data_files_count"] == 0
    [result] = call(plain_lake, sql.format(f"{options}, 'max-depth', '2'"))
    assert result["rewritten_data_files_count"] == 3
    factor = sql.format(f"{options}, 'rewrite-all', 'true', 'compression-factor', '2.0'")
    [result] = call(plain_lake, factor)
    limits = CompactionOptions(size, int(0.75 * size), int(1.8 * size))
    assert result["added_data_files_count"] == expected_outputs(2 * result["rewritten_bytes_count"], limits) > 3
    counts = table.refresh().inspect.files()["record_count"].to_pylist()
    assert max(counts) - min(counts) <= 1


def test_score_partitions_measures_and_recommends(plain_lake: PlainLake) -> None:
    filled(plain_lake)
    [score] = call(plain_lake, "CALL score_partitions('db.t', target => '60KB')")
    assert (score["clustering_depth"], score["clustering_overlap"]) == (None, None)
    sql = "CALL score_partitions('db.t', target => '60KB', cluster_by => 'k')"
    [score] = call(plain_lake, sql)
    assert (score["clustering_depth"], score["clustering_overlap"]) == (6.0, 1.0)
    assert score["recommendation"] == "cluster: 6 files, a point of the order meets 6.0 of them"
    call(plain_lake, "CALL compact_table('db.t', sort_order => 'k', target => '60KB')")
    [score] = call(plain_lake, sql)
    assert score["clustering_depth"] == 1.0
    assert score["clustering_overlap"] == pytest.approx(1 / score["data_files"])
    assert not score["recommendation"].startswith("cluster")
    with pytest.raises(InvalidArgumentError, match="cluster_by is refused: there is no column 'nope'"):
        call(plain_lake, "CALL score_partitions('db.t', cluster_by => 'nope')")


def test_maintain_table_takes_the_order_from_the_call_or_from_properties(plain_lake: PlainLake) -> None:
    table = filled(plain_lake)
    with table.transaction() as change:
        change.set_properties({"iceberg-compact.sort-order": "k, id DESC"})
    [step] = call(plain_lake, "CALL maintain_table('db.t', steps => array('compact'))")
    assert step["outcome"] == "done"
    in_order = [row for file in file_rows(table) for row in file]
    assert in_order == sorted(in_order, key=key)
    [step] = call(plain_lake, "CALL maintain_table('db.t', steps => array('compact'))")
    assert step["outcome"] == "nothing to do"
    for number in range(10, 16):
        table.refresh().append(batch(number))
    [step] = call(plain_lake, "CALL maintain_table('db.t', steps => array('compact'), strategy => 'binpack')")
    assert step["outcome"] == "done"
    [step] = call(plain_lake, "CALL maintain_table('db.t', steps => array('compact'), sort_order => 'hilbert(k, id)')")
    assert step["outcome"] in ("done", "nothing to do")
    with pytest.raises(IcebergCompactError, match="there is no column 'nope'"):
        call(plain_lake, "CALL maintain_table('db.t', steps => array('compact'), sort_order => 'nope')")


def test_a_group_in_conflict_is_clustered_again_although_its_files_have_the_right_size(plain_lake: PlainLake) -> None:
    table = filled(plain_lake)
    size = int(np.mean(table.inspect.files()["file_size_in_bytes"].to_pylist()))
    done: list[str] = []

    def interfere(event: str, facts: Mapping[str, object]) -> None:
        if event == "commit.validate" and not done:
            done.append(event)
            current = plain_lake.load("db.t")
            add_position_deletes(current, {path: [0] for path in data_paths(current)})

    with events.listening(interfere):
        [result] = call(plain_lake, f"CALL compact_table('db.t', sort_order => 'k, id DESC', target => {size})")
    assert done
    assert (result["rewritten_data_files_count"], result["failed_data_files_count"]) == (6, 0)
    assert result["rows_count"] == 6 * ROWS - 6
    in_order = [row for file in file_rows(table) for row in file]
    assert len(in_order) == 6 * ROWS - 6
    assert in_order == sorted(in_order, key=key)
    assert result["depth_after"] == 1.0


def test_arguments_of_another_strategy_are_refused(plain_lake: PlainLake) -> None:
    filled(plain_lake, 2)
    for arguments in (
        "compression_factor => 2.0",
        "sort_order => 'k', max_output_size => 4",
        "sort_order => 'hilbert(k, id)', var_length_contribution => 4",
    ):
        with pytest.raises(InvalidArgumentError, match="means nothing for strategy"):
            call(plain_lake, f"CALL compact_table('db.t', {arguments})")
    with pytest.raises(InvalidArgumentError, match="does not sort"):
        call(plain_lake, "CALL compact_table('db.t', strategy => 'binpack', sort_order => 'k')")


def test_budgets_and_limits_leave_the_rest_for_another_run(plain_lake: PlainLake) -> None:
    table = filled(plain_lake)
    before = rows(table)
    [result] = call(plain_lake, SORT.replace(")", ", max_files => 4)"))
    assert result["rewritten_data_files_count"] == 4
    [planned, *_] = call(plain_lake, SORT.replace(")", ", rewrite_all => true, max_bytes => 10, dry_run => true)"))
    assert planned["action"] == "skip"
    [result] = call(plain_lake, SORT.replace(")", ", rewrite_all => true, partial_progress => true)"))
    assert result["depth_after"] == 1.0
    files = file_rows(table)
    for left, right in itertools.pairwise(files):
        assert key(left[-1]) <= key(right[0])
    assert rows(table.refresh()) == before
