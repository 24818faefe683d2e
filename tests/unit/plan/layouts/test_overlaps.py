"""The incremental rule on bounds alone: depth and write amplification over 200 rounds, and a second plan is empty."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import DoubleType, LongType, NestedField, StringType

from iceberg_compact_sql.plan.compaction import plan_compaction
from iceberg_compact_sql.plan.cost import Prices
from iceberg_compact_sql.plan.layouts.order import ClusterOrder, Layout, OrderField
from iceberg_compact_sql.plan.model import CompactionOptions, CompactionPlan
from iceberg_compact_sql.table.column_bounds import ColumnBounds
from iceberg_compact_sql.table.inventory import SnapshotFacts, TableInventory
from iceberg_compact_sql.table.model import LiveFile
from tests.support.planning import MB, NOW_MS, data_file, inventory_of

SCHEMA = Schema(NestedField(1, "k", LongType()), NestedField(2, "x", DoubleType()), NestedField(3, "s", StringType()))
TARGET_MB = 64
ROWS = 512
Keys = npt.NDArray[np.int64]


def options(order: ClusterOrder | None = None, max_depth: int | None = 4, **changes: Any) -> CompactionOptions:
    target = TARGET_MB * MB
    order = order or ClusterOrder("sort", (OrderField(1),))
    return CompactionOptions(
        target, int(0.75 * target), int(1.8 * target), order.layout, order, max_depth=max_depth, **changes
    )


def planned(inventory: TableInventory, wanted: CompactionOptions) -> CompactionPlan:
    return plan_compaction(inventory, wanted, now_ms=NOW_MS, prices=Prices())


def spans(*files: tuple[Any, Any] | ColumnBounds, size_mb: float = TARGET_MB, column: int = 1) -> TableInventory:
    made = [data_file(size_mb) for _ in files]
    known = [found if isinstance(found, ColumnBounds) else ColumnBounds(*found, 1000, 0, 0) for found in files]
    bounds = {file.path: {column: found} for file, found in zip(made, known, strict=True)}
    return inventory_of(made, schemas=[SCHEMA], bounds=bounds)


@dataclass
class Simulated:
    """Files of a table by their keys; a rewrite sorts the keys of a group and cuts them into even files."""

    keys: dict[str, Keys]
    files: list[LiveFile]
    appended = clustered = 0.0

    def inventory(self) -> TableInventory:
        bounds = {
            path: {1: ColumnBounds(int(keys.min()), int(keys.max()), len(keys), 0, 0)}
            for path, keys in self.keys.items()
        }
        return inventory_of(self.files, schemas=[SCHEMA], bounds=bounds)

    def add(self, keys: Keys) -> None:
        file = data_file(TARGET_MB * len(keys) / ROWS, rows=len(keys))
        self.files.append(file)
        self.keys[file.path] = keys

    def rewrite(self, plan: CompactionPlan) -> None:
        for group in plan.rewrites:
            keys = np.sort(np.concatenate([self.keys.pop(file.path) for file in group.files]))
            gone = {file.path for file in group.files}
            self.files = [file for file in self.files if file.path not in gone]
            self.clustered += len(keys) / ROWS
            for part in np.array_split(keys, group.expected_files):
                self.add(part)

    def met_by_a_row(self, random: np.random.Generator) -> float:
        """How many files hold the key of a random row between their bounds, on average."""
        everything = np.concatenate(list(self.keys.values()))
        low = np.array([keys.min() for keys in self.keys.values()])
        high = np.array([keys.max() for keys in self.keys.values()])
        points = random.choice(everything, 200)
        return float(((low <= points[:, None]) & (points[:, None] <= high)).sum(axis=1).mean())


def _uniform(random: np.random.Generator, round_number: int, rows: int) -> Keys:
    return random.integers(0, 10**9, rows)


def _late(random: np.random.Generator, round_number: int, rows: int) -> Keys:
    now = round_number * 10**6 + random.integers(0, 10**6, rows)
    late = random.random(rows) < 0.05
    return np.where(late, random.integers(0, max(1, round_number) * 10**6 + 1, rows), now)


def _hot(random: np.random.Generator, round_number: int, rows: int) -> Keys:
    return np.minimum(random.zipf(1.3, rows), 10**9)


def _tenants(random: np.random.Generator, round_number: int, rows: int) -> Keys:
    return (round_number % 20) * 10**6 + random.integers(0, 10**6, rows)


def _one_value(random: np.random.Generator, round_number: int, rows: int) -> Keys:
    return np.where(random.random(rows) < 0.4, 5 * 10**8, random.integers(0, 10**9, rows))


@pytest.mark.parametrize(
    ("stream", "depth", "amplification"),
    [(_uniform, 4.0, 9.0), (_late, 4.0, 14.0), (_hot, 4.0, 10.0), (_tenants, 3.0, 4.5), (_one_value, 3.5, 10.0)],
)
def test_depth_and_write_amplification_over_200_rounds(
    stream: Callable[[np.random.Generator, int, int], Keys], depth: float, amplification: float
) -> None:
    random = np.random.default_rng(7)
    table, wanted = Simulated({}, []), options()
    depths: list[float] = []
    for round_number in range(200):
        for _ in range(4):
            table.add(stream(random, round_number, ROWS // 8))
        table.appended += 0.5
        table.rewrite(planned(table.inventory(), wanted))
        again = planned(table.inventory(), wanted)
        assert not again.rewrites, (round_number, [group.reason for group in again.rewrites])
        assert again.depth is not None
        depths.append(again.depth)
    assert sum(map(len, table.keys.values())) == 200 * 4 * (ROWS // 8)
    assert np.mean(depths) <= depth, np.mean(depths)
    assert table.clustered / table.appended <= amplification, table.clustered / table.appended
    if stream not in (_one_value, _hot):
        # A frequent value has files of its own, and all of them hold it.
        assert table.met_by_a_row(random) <= 8


def test_files_that_touch_in_one_value_do_not_overlap() -> None:
    inventory = spans((1, 5), (5, 5), (5, 5), (5, 5), (5, 5), (5, 9), (9, 20))
    plan = planned(inventory, options(max_depth=1))
    assert plan.depth == 1.0
    assert not plan.rewrites


def test_the_smallest_of_the_files_that_overlap_are_rewritten() -> None:
    large = [data_file(TARGET_MB * 1.5), data_file(TARGET_MB * 1.5)]
    small = [data_file(TARGET_MB * 0.8) for _ in range(3)]
    apart = data_file(TARGET_MB)
    bounds = {file.path: {1: ColumnBounds(0, 100, 1000, 0, 0)} for file in (*large, *small)}
    bounds[apart.path] = {1: ColumnBounds(200, 300, 1000, 0, 0)}
    plan = planned(inventory_of([*large, *small, apart], schemas=[SCHEMA], bounds=bounds), options(max_depth=4))
    [group] = plan.rewrites
    # Five overlap: two must go, and the third one is not larger than these two.
    assert {file.path for file in group.files} >= {file.path for file in small}
    assert apart.path not in {file.path for file in group.files}
    assert group.reason.startswith(f"{len(group.files)} files of ")
    assert "depth 5.0 above max_depth 4: clustered into" in group.reason
    assert group.depth == 5.0


def test_parts_with_a_gap_between_them_stay_apart() -> None:
    inventory = spans(*[(0, 10)] * 6, *[(20, 30)] * 6)
    groups = planned(inventory, options()).rewrites
    assert sorted(len(group.files) for group in groups) == [6, 6]


def test_the_next_column_decides_where_the_first_has_one_value() -> None:
    files = [data_file(TARGET_MB) for _ in range(8)]
    bounds = {
        file.path: {1: ColumnBounds(7, 7, 1000, 0, 0), 2: ColumnBounds(0.0, 1.0, 1000, 0, 0)} for file in files[:6]
    }
    bounds |= {
        file.path: {1: ColumnBounds(8, 8, 1000, 0, 0), 2: ColumnBounds(0.0, 9.0, 1000, 0, 0)} for file in files[6:]
    }
    order = ClusterOrder("sort", (OrderField(1), OrderField(2)))
    plan = planned(inventory_of(files, schemas=[SCHEMA], bounds=bounds), options(order))
    [group] = plan.rewrites
    assert {file.path for file in group.files} == {file.path for file in files[:6]}


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("nulls_first", [False, True])
def test_nulls_and_nan_count_at_their_end_of_the_order(descending: bool, nulls_first: bool) -> None:
    order = ClusterOrder("sort", (OrderField(2, descending=descending, nulls_first=nulls_first),))
    only_nulls = ColumnBounds(None, None, 1000, 1000, 0)
    only_nan = ColumnBounds(None, None, 1000, 0, 1000)
    assert planned(spans(*[only_nulls] * 9, *[only_nan] * 9, column=2), options(order)).depth == 1.0
    some_nulls = ColumnBounds(1.0, 2.0, 1000, 10, 0)
    some_nan = ColumnBounds(1.0, 2.0, 1000, 0, 10)
    found = planned(spans(some_nulls, (2.0, 3.0), (0.0, 1.0), column=2), options(order)).depth
    assert found is not None
    assert found > 1.0
    found = planned(spans(some_nan, (2.0, 3.0), column=2), options(order)).depth
    assert found is not None
    assert found > 1.0


def test_files_without_bounds_are_named_and_left_alone() -> None:
    inventory = spans(*[ColumnBounds()] * 8, (1, 2))
    plan = planned(inventory, options())
    assert not plan.rewrites
    assert any("8 files without bounds of the order's columns" in group.reason for group in plan.groups)
    bucketed = ClusterOrder("sort", (OrderField(1, "bucket[8]"),))
    assert not planned(spans(*[(1, 9)] * 8), options(bucketed)).rewrites


def test_transforms_that_keep_the_order_have_bounds() -> None:
    order = ClusterOrder("sort", (OrderField(1, "truncate[100]"),))
    assert planned(spans((100, 150), (120, 199), (100, 199)), options(order)).depth == 1.0
    assert planned(spans((0, 150), (0, 199), (0, 199)), options(order)).depth == 3.0


@pytest.mark.parametrize("layout", ["sort", "zorder"])
def test_what_one_run_wrote_in_this_order_is_not_rewritten_again(layout: Layout) -> None:
    fields = (OrderField(3),) if layout == "sort" else (OrderField(3), OrderField(1))
    wanted = options(ClusterOrder(layout, fields))
    stamped = SnapshotFacts(1, 1, NOW_MS, True, "run", wanted.sizes_text)
    files = [data_file(TARGET_MB) for _ in range(9)]
    # Cut bounds of strings with one prefix: all files look alike.
    same = {1: ColumnBounds(1, 9, 1000, 0, 0), 3: ColumnBounds("https://example.", "https://example/", 1000, 0, 0)}
    bounds = {file.path: same for file in files}
    inventory = inventory_of(files, schemas=[SCHEMA], bounds=bounds, snapshots=[stamped])
    assert not planned(inventory, wanted).rewrites
    unordered = inventory_of(files, schemas=[SCHEMA], bounds=bounds)
    assert planned(unordered, wanted).rewrites
    # New files on top: the old ones count as one.
    new = [data_file(TARGET_MB, snapshot_id=2) for _ in range(2)]
    bounds |= {file.path: same for file in new}
    grown = inventory_of([*files, *new], schemas=[SCHEMA], bounds=bounds, snapshots=[stamped])
    assert not planned(grown, wanted).rewrites


def test_boxes_of_a_curve_that_overlap_are_joined() -> None:
    order = ClusterOrder("hilbert", (OrderField(1), OrderField(2)))
    files = [data_file(TARGET_MB) for _ in range(12)]
    whole = {1: ColumnBounds(0, 100, 1000, 0, 0), 2: ColumnBounds(0.0, 1.0, 1000, 0, 0)}
    corner = {1: ColumnBounds(900, 1000, 1000, 0, 0), 2: ColumnBounds(8.0, 9.0, 1000, 0, 0)}
    bounds = {file.path: whole for file in files[:10]} | {file.path: corner for file in files[10:]}
    plan = planned(inventory_of(files, schemas=[SCHEMA], bounds=bounds), options(order))
    [group] = plan.rewrites
    assert {file.path for file in group.files} == {file.path for file in files[:10]}
    assert group.depth == 10.0


def test_without_max_depth_only_sizes_count() -> None:
    assert not planned(spans(*[(0, 10)] * 9), options(max_depth=None)).rewrites
    [group] = planned(spans(*[(0, 10)] * 9, size_mb=1), options(max_depth=None)).rewrites
    assert len(group.files) == 9
