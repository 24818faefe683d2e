"""What must hold for every table and every option: nothing lost, nothing twice, and a second run finds nothing."""

from __future__ import annotations

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from iceberg_compact_sql.plan.options import resolve_options
from iceberg_compact_sql.plan.packing import expected_outputs, pack_files
from iceberg_compact_sql.rewrite.slicing import output_shares
from iceberg_compact_sql.table.model import DeleteKind
from tests.support.planning import after_run, data_file, delete_file, inventory_of, job_for, plan_for

sizes = st.lists(st.integers(0, 4000), max_size=60)


@st.composite
def size_options(draw: st.DrawFn) -> dict[str, int]:
    target = draw(st.integers(2, 2000))
    smallest = draw(st.integers(0, target - 1))
    largest = draw(st.integers(target + 1, target * 4))
    return {
        "target": target,
        "min_file_size": smallest,
        "max_file_size": largest,
        "min_input_files": draw(st.integers(1, 8)),
    }


@given(sizes, st.integers(1, 9000), st.none() | st.integers(1, 10))
def test_packing_loses_no_file_and_keeps_the_order(sizes: list[int], limit: int, most: int | None) -> None:
    files = [data_file(0, size_bytes=size) for size in sizes]
    groups = pack_files(files, limit, most)
    assert [file for group in groups for file in group] == files
    assert all(groups)
    for position, group in enumerate(groups):
        total = sum(file.size_bytes for file in group)
        assert total <= limit or len(group) == 1
        assert most is None or len(group) <= most
        if position + 1 < len(groups):
            # Next-fit: a group ends only because the next file did not fit.
            assert total + groups[position + 1][0].size_bytes > limit or len(group) == most


@given(st.integers(0, 100_000), size_options())
def test_output_shares_add_up(total: int, given_options: dict[str, int]) -> None:
    options = resolve_options(**given_options)
    cut = output_shares(total, expected_outputs(total, options), job_for(options))
    assert sum(cut) == total
    assert len(cut) == expected_outputs(total, options)
    assert all(size >= 0 for size in cut)
    assert all(size <= options.max_file_bytes for size in cut)


@settings(max_examples=300)
@given(sizes, size_options(), st.booleans())
def test_a_second_run_finds_nothing_to_do(sizes: list[int], given_options: dict[str, int], even: bool) -> None:
    inventory = inventory_of([data_file(0, size_bytes=size, rows=max(1, size)) for size in sizes])
    plan = plan_for(inventory, **given_options)
    again = plan_for(after_run(inventory, plan, even=even), **given_options)
    assert again.rewrites == ()


@given(sizes, size_options(), st.integers(1, 20))
def test_runs_under_a_limit_come_to_an_end(sizes: list[int], given_options: dict[str, int], most: int) -> None:
    inventory = inventory_of([data_file(0, size_bytes=size, rows=max(1, size)) for size in sizes])
    for _ in range(len(sizes) + 2):
        plan = plan_for(inventory, **given_options, max_files=most)
        if not plan.rewrites:
            break
        assert sum(len(group.files) for group in plan.rewrites) <= most
        inventory = after_run(inventory, plan)
    assert plan.rewrites == ()


@given(sizes, size_options(), st.data())
def test_every_file_is_planned_at_most_once(
    sizes: list[int], given_options: dict[str, int], data: st.DataObject
) -> None:
    partitions = st.sampled_from([(None,), ("a",), ("b",)])
    files = [data_file(0, size_bytes=size, partition=data.draw(partitions)) for size in sizes]
    arguments = dict(given_options)
    for name, values in (("max_files", st.integers(1, 30)), ("max_bytes", st.integers(1, 9000))):
        value = data.draw(st.none() | values)
        if value is not None:
            arguments[name] = value
    arguments["max_group_size"] = data.draw(st.integers(1, 9000))
    plan = plan_for(inventory_of(files), **arguments)
    planned = [file.path for group in plan.groups for file in group.files]
    assert len(planned) == len(set(planned))
    for group in plan.rewrites:
        assert len({file.partition for file in group.files}) == 1
        assert group.input_bytes <= plan.options.max_group_bytes or len(group.files) == 1
    if "max_bytes" in arguments:
        assert sum(group.input_bytes for group in plan.rewrites) <= arguments["max_bytes"]


@given(sizes, size_options(), st.integers(0, 5), st.data())
def test_deletes_are_applied_once(
    sizes: list[int], given_options: dict[str, int], count: int, data: st.DataObject
) -> None:
    assume(sizes)
    files = [data_file(0, size_bytes=size, rows=max(2, size)) for size in sizes]
    deletes = []
    for _ in range(count):
        kind = data.draw(st.sampled_from([DeleteKind.POSITION, DeleteKind.EQUALITY]))
        target = data.draw(st.none() | st.sampled_from(files)) if kind is DeleteKind.POSITION else None
        deletes.append(delete_file(kind, referenced_path=target.path if target else None, rows=2))
    inventory = inventory_of(files, deletes)
    threshold = data.draw(st.none() | st.integers(0, 3))
    arguments = {**given_options, **({} if threshold is None else {"delete_file_threshold": threshold})}
    plan = plan_for(inventory, **arguments)
    for group in plan.groups:
        for file, applied in zip(group.files, group.deletes, strict=True):
            assert list(applied) == list(inventory.deletes_for(file))
    assert plan_for(after_run(inventory, plan), **arguments).rewrites == ()
