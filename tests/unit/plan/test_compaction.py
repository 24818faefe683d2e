"""Every decision has a sentence with its figures; tables of files in, sentences out."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform, UnknownTransform, VoidTransform
from pyiceberg.types import DateType, DoubleType, NestedField, StringType

from iceberg_compact_sql.plan.cost import Prices, Throughput, Work, estimate
from iceberg_compact_sql.plan.partition_scores import score_partitions
from iceberg_compact_sql.procedures.compact_table import dry_run_rows
from iceberg_compact_sql.procedures.score_partitions import score_row
from iceberg_compact_sql.table.inventory import SnapshotFacts
from iceberg_compact_sql.table.model import DeleteKind, LiveFile
from tests.support.planning import HOUR_MS, MB, NOW_MS, data_file, delete_file, inventory_of, plan_for

SCHEMA = Schema(
    NestedField(1, "day", DateType()), NestedField(2, "kind", StringType()), NestedField(3, "x", DoubleType())
)
BY_KIND = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "kind"), spec_id=1)
MINUTES_AGO = [SnapshotFacts(1, 1, NOW_MS - 12 * 60_000, False)]


def of(kind: str | None, sizes: list[float], **changes: Any) -> list[LiveFile]:
    return [data_file(size, spec_id=1, partition=(kind,), **changes) for size in sizes]


@pytest.mark.parametrize(
    ("files", "arguments", "action", "reason"),
    [
        ([3.1] * 12, {}, "rewrite", "12 files of 3.1 MB on average, below 384 MB: merged into 1"),
        ([3.1] * 2, {}, "skip", "2 files, fewer than min_input_files 5"),
        ([3.1], {}, "skip", "1 file of 3.1 MB, alone: nothing to merge it with"),
        ([500, 600, 900], {}, "skip", "3 files, all within 384 MB to 921.6 MB: nothing to do"),
        ([500], {}, "skip", "1 file, within 384 MB to 921.6 MB: nothing to do"),
        ([2048], {}, "rewrite", "1 file of 2 GB, above 921.6 MB: split into 4"),
        ([300, 300, 300], {}, "rewrite", "3 files of 300 MB on average, below 384 MB: merged into 2"),
        ([300, 300], {}, "skip", "2 files of 300 MB on average: a rewrite would write 2 files, no gain"),
        ([1000, 10], {}, "rewrite", "2 files of 505 MB on average, 1 below 384 MB, 1 above 921.6 MB: rewritten into 2"),
        ([500, 500], {"rewrite_all": True}, "rewrite", "rewrite_all: 2 files of 500 MB on average rewritten into 2"),
        ([3] * 5, {"idle": "1h"}, "skip", "written to 12 minutes ago, idle 1 hour"),
        ([3] * 5, {"idle": "1m"}, "rewrite", "5 files of 3 MB on average, below 384 MB: merged into 1"),
        ([3] * 5, {"min_score": 0.9}, "skip", "score 0.22, below min_score 0.9"),
    ],
)
def test_reasons(files: list[float], arguments: dict[str, Any], action: str, reason: str) -> None:
    inventory = inventory_of([data_file(size) for size in files], snapshots=MINUTES_AGO)
    groups = plan_for(inventory, **arguments).groups
    assert [(group.action, group.reason) for group in groups] == [(action, reason)]


def test_what_cannot_be_rewritten_is_left_alone_with_the_reason() -> None:
    files = [data_file(1, file_format="ORC") for _ in range(6)] + [data_file(1, encrypted=True) for _ in range(6)]
    files += [data_file(5000, rows=1), *(data_file(1) for _ in range(5))]
    for arguments in ({}, {"rewrite_all": True}):
        plan = plan_for(inventory_of(files), **arguments)
        rewritten = [file for group in plan.rewrites for file in group.files]
        assert all(file.file_format == "PARQUET" and not file.encrypted for file in rewritten)
        reasons = [group.reason for group in plan.groups if group.action == "skip"]
        assert "6 files of format ORC: left alone, only Parquet is rewritten" in reasons
        assert "6 files encrypted: left alone, this version does not rewrite them" in reasons
    assert "1 file of a single row: cannot be split" in [g.reason for g in plan_for(inventory_of(files)).groups]


def test_deletes_make_a_file_worth_rewriting_alone() -> None:
    file = data_file(500, rows=100)
    scoped = delete_file(referenced_path=file.path, rows=40)
    plan = plan_for(inventory_of([file], [scoped]))
    assert [(g.action, g.reason) for g in plan.groups] == [
        (
            "rewrite",
            "1 file of 500 MB, 1 with 40% of rows deleted (delete_ratio_threshold 0.3): rewritten into 1",
        )
    ]
    assert plan.rewrites[0].deletes == ((scoped,),)
    assert plan_for(inventory_of([file], [scoped]), delete_ratio_threshold=0.5).rewrites == ()
    by_count = plan_for(inventory_of([file], [delete_file(DeleteKind.EQUALITY)]), delete_file_threshold=1)
    assert by_count.rewrites[0].reason.endswith("1 with 1 delete file (delete_file_threshold 1): rewritten into 1")
    # Older than the file: an equality delete of the same commit does not apply.
    old = delete_file(DeleteKind.EQUALITY, sequence_number=1)
    assert plan_for(inventory_of([file], [old]), delete_file_threshold=1).rewrites == ()


def test_partitions_below_the_fragment_ratio_are_left_alone() -> None:
    files = of("a", [1] * 8) + of("b", [1] * 8) + of("c", [1] * 8)
    deletes = [
        delete_file(DeleteKind.EQUALITY, spec_id=1, partition=(kind,))
        for kind, count in (("b", 1), ("c", 2))
        for _ in range(count)
    ]
    inventory = inventory_of(files, deletes, specs={1: BY_KIND}, default_spec_id=1, schemas=[SCHEMA])
    plan = plan_for(inventory, min_fragment_ratio=0.25, delete_file_threshold=1)
    below = "delete files for each data file, below min_fragment_ratio 0.25"
    skipped = {group.partition_path: group.reason for group in plan.groups if group.action == "skip"}
    assert skipped == {"kind=a": f"0.00 {below}", "kind=b": f"0.12 {below}"}
    # c has the ratio exactly.
    assert [(group.partition_path, len(group.files)) for group in plan.rewrites] == [("kind=c", 8)]
    everything = plan_for(inventory, min_fragment_ratio=0, delete_file_threshold=1)
    assert {group.partition_path for group in everything.rewrites} == {"kind=a", "kind=b", "kind=c"}


def test_partitions_are_apart_and_other_specs_together() -> None:
    specs = {0: UNPARTITIONED_PARTITION_SPEC, 1: BY_KIND}
    files = of("a", [1] * 5) + of("b/c", [2] * 6) + [data_file(1) for _ in range(3)] + of(None, [1] * 3)
    plan = plan_for(inventory_of(files, specs=specs, default_spec_id=1, schemas=[SCHEMA]))
    seen = [(g.partition, g.partition_path, g.spec_id, g.output_spec_id, len(g.files), g.action) for g in plan.groups]
    assert seen == [
        (("a",), "kind=a", 1, 1, 5, "rewrite"),
        (("b/c",), "kind=b%2Fc", 1, 1, 6, "rewrite"),
        # As in Iceberg, the null partition joins the files of other specs.
        (None, "", 0, 1, 6, "rewrite"),
    ]


def test_strange_partition_values() -> None:
    nan, strange = float("nan"), PartitionSpec(PartitionField(3, 1000, IdentityTransform(), "x"), spec_id=1)
    files = [data_file(1, spec_id=1, partition=(value,)) for value in (nan, float("nan"), 0.0, -0.0, None) * 5]
    plan = plan_for(inventory_of(files, specs={1: strange}, default_spec_id=1, schemas=[SCHEMA]))
    assert sorted((g.partition_path, len(g.files)) for g in plan.groups) == [
        ("x=-0.0", 5),
        ("x=0.0", 5),
        ("x=nan", 10),
        ("x=null", 5),
    ]


@pytest.mark.parametrize(
    ("transform", "source", "value", "path"),
    [
        (DayTransform(), 1, 20454, "f=2026-01-01"),
        (BucketTransform(4), 2, 3, "f=3"),
        (VoidTransform(), 2, None, "f=null"),
        (UnknownTransform("zorder[3]"), 2, "odd value", "f=odd+value"),
        (IdentityTransform(), 99, "dropped column", "f=dropped+column"),
        (IdentityTransform(), 2, "ä b", "f=%C3%A4+b"),
    ],
)
def test_partition_paths(transform: Any, source: int, value: Any, path: str) -> None:
    spec = PartitionSpec(PartitionField(source, 1000, transform, "f"), spec_id=1)
    inventory = inventory_of([], specs={1: spec}, default_spec_id=1, schemas=[SCHEMA])
    assert inventory.partition_path(1, (value,)) == path


def test_max_files_cuts_the_last_group_and_says_so() -> None:
    specs = {1: BY_KIND}
    files = of("a", [1] * 5) + of("b", [1] * 7) + of("c", [1] * 5)
    plan = plan_for(inventory_of(files, specs=specs, default_spec_id=1, schemas=[SCHEMA]), max_files=8)
    assert [(g.partition_path, g.action, len(g.files), g.reason.split(":")[0]) for g in plan.groups] == [
        ("kind=a", "rewrite", 5, "5 files of 1 MB on average, below 384 MB"),
        ("kind=b", "rewrite", 3, "3 files of 1 MB on average, below 384 MB"),
        ("kind=b", "skip", 4, "4 files left for another run"),
        ("kind=c", "skip", 5, "5 files left for another run"),
    ]


def test_orders_and_budgets() -> None:
    specs = {1: BY_KIND}
    files = of("few", [100] * 5) + of("many", [1] * 30) + of("large", [300] * 6)
    inventory = inventory_of(files, specs=specs, default_spec_id=1, schemas=[SCHEMA])

    def order(**arguments: Any) -> list[str]:
        return [group.partition_path for group in plan_for(inventory, **arguments).rewrites]

    assert order() == ["kind=few", "kind=many", "kind=large"]
    assert order(job_order="bytes-asc") == ["kind=many", "kind=few", "kind=large"]
    assert order(job_order="bytes-desc") == ["kind=large", "kind=few", "kind=many"]
    assert order(job_order="files-asc") == ["kind=few", "kind=large", "kind=many"]
    assert order(job_order="files-desc") == ["kind=many", "kind=large", "kind=few"]
    assert order(job_order="score-desc") == ["kind=many", "kind=large", "kind=few"]
    assert order(max_bytes="600MB") == ["kind=many", "kind=few"]
    refused = [g.reason for g in plan_for(inventory, max_bytes="600MB").groups if g.action == "skip"]
    assert refused == ["1.8 GB on top of 30 MB would exceed max_bytes 600 MB"]
    assert order(time_budget="5s") == ["kind=many"]
    assert order(max_cost=1e-12) == []
    everything = plan_for(inventory)
    assert order(max_cost=sum(group.estimated_cost for group in everything.rewrites)) != []
    assert [group.group_id for group in everything.groups] == [1, 2, 3]


def test_row_groups_that_can_be_copied_are_counted() -> None:
    whole = data_file(64, split_offsets=(4, 32 * MB))
    small = data_file(6, split_offsets=(4, 3 * MB))
    deleted = data_file(64, split_offsets=(4, 32 * MB))
    delete = delete_file(referenced_path=deleted.path, rows=1)
    inventory = inventory_of([whole, small, deleted, data_file(1), data_file(1)], [delete])
    copied, decoded = plan_for(inventory).rewrites[0], plan_for(inventory, copy="never").rewrites[0]
    assert (copied.copied_row_groups, decoded.copied_row_groups) == (2, 0)
    assert copied.estimated_seconds < decoded.estimated_seconds


def test_dry_run_rows_are_the_plan() -> None:
    files = [data_file(3) for _ in range(5)]
    plan = plan_for(inventory_of(files, [delete_file(DeleteKind.EQUALITY)]))
    ((*row, seconds, cost, depth, source),) = dry_run_rows(plan)
    assert (depth, source) == (None, "constants")
    reason = "5 files of 3 MB on average, below 384 MB, 5 with deletes to apply: merged into 1; 5 row groups encoded"
    assert row == [1, "", 0, "rewrite", reason, 5, 1, 15 * MB, 1, 0]
    assert seconds > 0
    assert cost > 0


def test_scores_put_the_worst_first_and_the_healthy_last() -> None:
    specs = {1: BY_KIND}
    day_ago = NOW_MS - 24 * HOUR_MS
    snapshots = [SnapshotFacts(1, 1, day_ago, False), SnapshotFacts(2, 2, NOW_MS - HOUR_MS, True)]
    files = of("bad", [1] * 50) + of("fine", [500] * 200) + of("single", [1]) + of("redone", [1] * 2, snapshot_id=2)
    deletes = [delete_file(spec_id=1, partition=("bad",), rows=5) for _ in range(5)]
    inventory = inventory_of(files, deletes, specs=specs, default_spec_id=1, snapshots=snapshots, schemas=[SCHEMA])
    scores = score_partitions(inventory, target_bytes=512 * MB, now_ms=NOW_MS, prices=Prices())
    rows = [score_row(score) for score in scores]
    assert [row[0] for row in rows] == ["kind=bad", "kind=redone", "kind=fine", "kind=single"]
    bad, redone, fine, single = rows
    # 50 files of 100, 5 deletes on 50 files, a day old, all small.
    assert bad[12] == pytest.approx(0.5 * 0.3 + 0.1 * 0.3 + 1 * 0.2 + 1 * 0.2)
    assert bad[1:10] == (1, 50, 50 * MB, 50_000, 50, MB, 5, pytest.approx(0.0005), 0.1)
    assert bad[10] == dt.datetime.fromtimestamp(day_ago / 1000, dt.timezone.utc)
    assert bad[11] is None
    assert bad[14] == 49
    assert bad[16].startswith("compact: 50 files of 1 MB on average, below 384 MB")
    assert redone[11] == dt.datetime.fromtimestamp((NOW_MS - HOUR_MS) / 1000, dt.timezone.utc)
    assert redone[12] == pytest.approx(0.02 * 0.3 + 1 / 24 * 0.2 + 0.2)
    assert redone[16] == "wait: 2 files, fewer than min_input_files 5"
    assert fine[12] == single[12] == 0.0
    assert fine[13] == single[13] == 100
    assert fine[14:16] == (0, 0.0)
    assert fine[16] == "healthy: 200 files, nothing to gain"


def test_health_is_amoros() -> None:
    # P = min(6,12)/12 * min(60,384)/384; size points = ceil(40 - 40 P (1 - 10/384)).
    files = [data_file(10) for _ in range(6)]
    (score,) = score_partitions(inventory_of(files), target_bytes=512 * MB, now_ms=NOW_MS, prices=Prices())
    assert score.health == 37 + 40 + 20 + 0


def test_prices_change_the_cost() -> None:
    work = Work(data_files=1000, data_bytes=1000 * MB, outputs=2)
    base = estimate(work, Prices(), Throughput()).dollars
    dear = Prices.from_settings({"spark.iceberg_compact_sql.price.get_per_1000": "4"})
    # 1,000 files of 1 MB are 1,000 reads.
    assert estimate(work, dear, Throughput()).dollars == pytest.approx(base + 4 - Prices().get_per_1000)
    with pytest.raises(Exception, match=r"price\.gb_second is 'abc' but must be a number of dollars"):
        Prices.from_settings({"spark.iceberg_compact_sql.price.gb_second": "abc"})


def test_an_empty_table_has_an_empty_plan() -> None:
    assert plan_for(inventory_of([])).groups == ()
    assert score_partitions(inventory_of([]), target_bytes=MB, now_ms=NOW_MS, prices=Prices()) == []


def test_an_output_spec_of_choice() -> None:
    specs = {0: UNPARTITIONED_PARTITION_SPEC, 1: BY_KIND}
    files = of("a", [1] * 3) + of("b", [1] * 3) + [data_file(1) for _ in range(2)]
    inventory = inventory_of(files, specs=specs, default_spec_id=1, schemas=[SCHEMA])
    assert plan_for(inventory, output_spec_id=1).rewrites == ()
    (group,) = plan_for(inventory, output_spec_id=0).rewrites
    assert (len(group.files), group.partition, group.output_spec_id) == (8, None, 0)


def test_the_last_write_of_a_compacted_partition_is_at_most_its_plan() -> None:
    snapshots = [SnapshotFacts(1, 1, NOW_MS - 5 * HOUR_MS, False), SnapshotFacts(2, 2, NOW_MS - HOUR_MS, True)]
    compacted = data_file(1, snapshot_id=2, sequence_number=1, file_sequence_number=2)
    inventory = inventory_of([compacted], snapshots=snapshots)
    history = inventory.history(inventory.files)
    assert (history.last_written_ms, history.last_compacted_ms) == (NOW_MS - 5 * HOUR_MS, NOW_MS - HOUR_MS)
    forgotten = inventory_of([data_file(1, snapshot_id=99)], snapshots=snapshots)
    assert forgotten.history(forgotten.files).last_written_ms is None
