"""The same files into the same number of outputs as Iceberg's own planner, on seeded random tables.

Iceberg's planner is asked directly, on tables whose data files exist in the metadata only: sizes are as large as in
life, and hundreds of plans cost seconds. One test runs the procedure itself on real files.
"""

from __future__ import annotations

import random
from typing import Any

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import DayTransform, IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType, TimestampType

from iceberg_compact_sql.plan.compaction import plan_compaction
from iceberg_compact_sql.plan.cost import Prices
from iceberg_compact_sql.plan.filters.parse import parse_where
from iceberg_compact_sql.plan.model import CompactionPlan
from iceberg_compact_sql.storage.same_file import same_file_key
from iceberg_compact_sql.table.inventory import read_inventory
from tests.support import handmade
from tests.support.java import Lake
from tests.support.planning import MB, NOW_MS, fake_append, options_for

SCHEMA = Schema(
    NestedField(1, "id", LongType()), NestedField(2, "kind", StringType()), NestedField(3, "ts", TimestampType())
)
BY_KIND = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "kind"))
Groups = set[tuple[frozenset[str], int]]


def our_plan(table: Table, options: dict[str, str], where: str | None = None) -> CompactionPlan:
    table.refresh()
    expression = parse_where(where, table.schema(), time_zone="UTC") if where else None
    inventory = read_inventory(table, "main", expression)
    resolved = options_for(properties=table.properties, options=options, spec_ids=table.specs())
    return plan_compaction(inventory, resolved, now_ms=NOW_MS, prices=Prices(), where_given=where is not None)


def our_groups(plan: CompactionPlan) -> Groups:
    return {(frozenset(same_file_key(file.path) for file in g.files), g.expected_files) for g in plan.rewrites}


def java_groups(lake: Lake, name: str, options: dict[str, str], where: str | None = None) -> Groups:
    """The groups of org.apache.iceberg.actions.BinPackRewriteFilePlanner."""
    jvm: Any = lake.spark._jvm
    table = lake.java_table(name)
    expressions = jvm.org.apache.iceberg.expressions.Expressions
    condition = expressions.alwaysTrue() if where is None else java_filter(jvm, where)
    planner = jvm.org.apache.iceberg.actions.BinPackRewriteFilePlanner(
        table, condition, table.currentSnapshot().snapshotId(), False
    )
    planner.init(jvm.java.util.HashMap(options))
    groups: Groups = set()
    iterator = planner.plan().groups().iterator()
    while iterator.hasNext():
        group = iterator.next()
        paths = frozenset(same_file_key(task.file().location()) for task in group.fileScanTasks())
        groups.add((paths, group.expectedOutputFiles()))
    return groups


def java_filter(jvm: Any, where: str) -> Any:
    column, value = where.split(" = ")
    return jvm.org.apache.iceberg.expressions.Expressions.equal(column, value.strip("'"))


def is_no_gain(group: tuple[frozenset[str], int], sizes: dict[str, int], largest: int, deleted: set[str]) -> bool:
    """Our one exception: as many files out as in, none too large, no delete to apply."""
    paths, outputs = group
    return outputs >= len(paths) and all(sizes[p] <= largest for p in paths) and not paths & deleted


def random_options(rng: random.Random, target: int, *, group_limits: bool) -> dict[str, str]:
    options = {"target-file-size-bytes": str(target)}
    if rng.random() < 0.3:
        options["min-file-size-bytes"] = str(int(target * rng.choice([0.0, 0.1, 0.5, 0.9, 0.99])))
    if rng.random() < 0.3:
        options["max-file-size-bytes"] = str(int(target * rng.choice([1.01, 1.2, 2.0, 3.7])))
    if rng.random() < 0.4:
        options["min-input-files"] = str(rng.choice([1, 2, 3, 8]))
    if group_limits and rng.random() < 0.3:
        options["max-file-group-size-bytes"] = str(int(target * rng.choice([0.5, 1.0, 2.5, 7.0])))
    if group_limits and rng.random() < 0.2:
        options["max-file-group-input-files"] = str(rng.choice([2, 5]))
    if rng.random() < 0.3:
        options["delete-file-threshold"] = str(rng.choice([1, 2]))
    if rng.random() < 0.3:
        options["delete-ratio-threshold"] = str(rng.choice([0.05, 0.5, 1.0]))
    if rng.random() < 0.1:
        options["rewrite-all"] = "true"
    return options


def random_size(rng: random.Random, target: int) -> int:
    return max(1, int(target * rng.choice([rng.uniform(0.001, 0.1), rng.uniform(0.1, 1.1), rng.uniform(0.7, 4)])))


@pytest.mark.parametrize("seed", range(12))
def test_random_tables(lake: Lake, seed: int) -> None:
    rng = random.Random(seed)
    target = rng.choice([64 * MB, 512 * MB, 1000])
    spec = rng.choice([None, BY_KIND])
    table = handmade.make_table(lake.catalog, "db.t", SCHEMA, spec)
    kinds: list[tuple[Any, ...]] = [()] if spec is None else [("a",), ("b",), (None,), ("x/y =%",)]
    paths = fake_append(
        table,
        [(rng.choice(kinds), random_size(rng, target), rng.randint(1, 5000)) for _ in range(rng.randint(1, 60))],
    )
    for path in rng.sample(paths, k=min(len(paths), rng.choice([0, 0, 3]))):
        handmade.add_position_deletes(table, {path: range(rng.choice([1, 40]))}, scoped=rng.choice([True, "bounds"]))
    if spec is None and rng.random() < 0.3:
        handmade.add_equality_deletes(table, [{"id": 1}], [1])
    evolved = spec is not None and rng.random() < 0.3
    if evolved:
        # Files of the old spec are planned together, with those of the null partition.
        with table.update_spec() as update:
            update.add_field("ts", DayTransform(), "day")
        table.refresh()
        more = [("a", 20000), ("b", 20001), (None, None)]
        fake_append(table, [(rng.choice(more), random_size(rng, target), 100) for _ in range(rng.randint(1, 20))])
    inventory = read_inventory(table, "main")
    sizes = {same_file_key(file.path): file.size_bytes for file in inventory.files}
    deleted = {same_file_key(file.path) for file in inventory.files if inventory.deletes_for(file)}
    for _ in range(12):
        # Iceberg reads several manifests at once, in any order: then where a group is cut is chance.
        options = random_options(rng, target, group_limits=not evolved)
        plan = our_plan(table, options)
        ours, theirs = our_groups(plan), java_groups(lake, "db.t", options)
        skipped = {group for group in theirs if is_no_gain(group, sizes, plan.options.max_file_bytes, deleted)}
        if options.get("rewrite-all") != "true":
            theirs -= skipped
        # More outputs than rows cannot be: Iceberg's estimate does not look at rows.
        rows = {same_file_key(file.path): file.rows for file in inventory.files}
        theirs = {(paths, min(count, sum(rows[p] for p in paths))) for paths, count in theirs}
        assert ours == theirs, options


def test_where_chooses_the_same_files(lake: Lake) -> None:
    table = handmade.make_table(lake.catalog, "db.t", SCHEMA, BY_KIND)
    fake_append(table, [((kind,), 3 * MB, 10) for kind in ("a", "b", None) for _ in range(6)])
    assert our_groups(our_plan(table, {}, "kind = 'a'")) == java_groups(lake, "db.t", {}, "kind = 'a'")
    assert our_plan(table, {}, "kind = 'zzz'").groups == ()


def test_the_procedure_itself(lake: Lake) -> None:
    """Iceberg's CALL on real files rewrites as many files, bytes and outputs as our plan of the same table says."""
    lake.sql("CREATE TABLE {lake}.db.t (id BIGINT, kind STRING) USING iceberg PARTITIONED BY (kind)")
    for batch in range(7):
        kinds = "'a'" if batch % 2 else "'b'"
        lake.sql(f"INSERT INTO {{lake}}.db.t SELECT id, {kinds} FROM range({batch * 100}, {batch * 100 + 100})")
    lake.sql("INSERT INTO {lake}.db.t VALUES (1000, 'c'), (1001, 'c')")
    options = {"min-input-files": "3"}
    plan = our_plan(lake.load("db.t"), options)
    files = sum(len(group.files) for group in plan.rewrites)
    outputs = sum(group.expected_files for group in plan.rewrites)
    size = sum(group.input_bytes for group in plan.rewrites)
    row = lake.sql(
        "CALL {lake}.system.rewrite_data_files(table => 'db.t', options => map('min-input-files', '3'))"
    ).collect()[0]
    assert (files, outputs, size) == (
        row["rewritten_data_files_count"],
        row["added_data_files_count"],
        row["rewritten_bytes_count"],
    )
    assert our_plan(lake.load("db.t"), options).rewrites == ()


def java_deletes(lake: Lake, name: str) -> dict[str, set[tuple[str, int | None]]]:
    """For each data file the deletes that Java's scan applies to it."""
    tasks = lake.java_table(name).newScan().planFiles().iterator()
    found: dict[str, set[tuple[str, int | None]]] = {}
    while tasks.hasNext():
        task = tasks.next()
        found[same_file_key(task.file().location())] = {
            (same_file_key(delete.location()), delete.contentOffset()) for delete in task.deletes()
        }
    return found


def our_deletes(table: Table) -> dict[str, set[tuple[str, int | None]]]:
    inventory = read_inventory(table, "main")
    return {
        same_file_key(file.path): {(same_file_key(d.path), d.content_offset) for d in inventory.deletes_for(file)}
        for file in inventory.files
    }


def test_deletes_apply_to_the_same_files(lake: Lake) -> None:
    lake.sql("CREATE TABLE {lake}.db.t (id BIGINT, kind STRING) USING iceberg PARTITIONED BY (kind)")
    rng = random.Random(7)
    for batch in range(6):
        lake.sql(
            f"INSERT INTO {{lake}}.db.t SELECT id, kind FROM range({batch * 10}, {batch * 10 + 10}), "
            "(SELECT explode(array('a', 'b', null)) AS kind)"
        )
        kind = rng.choice(["a", "b"])
        key = rng.randrange(0, batch * 10 + 20)
        lake.equality_delete("db.t", ["id"], [(key,)], partition=f"kind={kind}")
        paths = [path for path in lake.data_paths("db.t") if f"kind={kind}" in path]
        lake.position_delete("db.t", [(path, 0) for path in rng.sample(paths, k=min(2, len(paths)))])
    assert our_deletes(lake.load("db.t")) == java_deletes(lake, "db.t")


def test_vectors_apply_to_the_same_files(lake: Lake) -> None:
    lake.sql(
        "CREATE TABLE {lake}.db.t (id BIGINT) USING iceberg "
        "TBLPROPERTIES ('format-version' = '3', 'write.delete.mode' = 'merge-on-read')"
    )
    for batch in range(3):
        lake.sql(f"INSERT INTO {{lake}}.db.t SELECT id FROM range({batch * 10}, {batch * 10 + 10})")
    lake.sql("DELETE FROM {lake}.db.t WHERE id IN (1, 2, 15)")
    ours = our_deletes(lake.load("db.t"))
    assert ours == java_deletes(lake, "db.t")
    assert sum(len(deletes) for deletes in ours.values()) == 2
