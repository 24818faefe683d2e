"""Events: declared in one list, seen by the run that raises them alone, and the points at which a run can be ended."""

from __future__ import annotations

import ast
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

import iceberg_compact_sql
from iceberg_compact_sql.events import (
    EVENTS,
    Observer,
    RunCancelled,
    ThreadPool,
    is_cancelled,
    listening,
    observed,
    reach,
    stop_if_cancelled,
    uninterrupted,
)

PACKAGE = Path(iceberg_compact_sql.__file__).parent


def raised_events() -> Iterator[tuple[str, frozenset[str], str]]:
    """Every call of `reach` in the package: the event, its fields and the place."""
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            function = node.func
            name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
            if name == "reach":
                place = f"{path.relative_to(PACKAGE)}:{node.lineno}"
                [event] = [argument.value for argument in node.args if isinstance(argument, ast.Constant)]
                fields = [keyword.arg for keyword in node.keywords]
                assert None not in fields, f"{place}: name the fields one by one"
                yield str(event), frozenset(str(field) for field in fields), place


def test_each_raised_event_is_declared_with_its_fields_and_each_declared_one_is_raised() -> None:
    seen = list(raised_events())
    wrong = [
        (event, place) for event, fields, place in seen if event not in EVENTS or fields != set(EVENTS[event].fields)
    ]
    assert wrong == []
    assert {event for event, _, _ in seen} == set(EVENTS)


def test_each_declaration_has_a_meaning_for_the_event_and_its_fields() -> None:
    for event in EVENTS.values():
        assert event.meaning and all(event.fields.values()), event.name
        assert "run_id" not in event.fields


def test_no_event_of_a_commit_ends_a_run() -> None:
    assert [name for name, event in EVENTS.items() if event.stops and name.startswith(("commit.", "hadoop."))] == []


@pytest.mark.parametrize("fields", [{}, {"files": 1}, {"files": 1, "deletes": 2, "more": 3}], ids=str)
def test_undeclared_fields_are_refused(fields: Mapping[str, object]) -> None:
    with pytest.raises(ValueError, match=r"'inventory\.read' .* not declared"):
        reach("inventory.read", **fields)


def test_an_undeclared_event_is_refused_also_when_nobody_listens() -> None:
    with pytest.raises(ValueError, match=r"'plan\.maybe' .* not declared"):
        reach("plan.maybe")


def test_two_runs_in_one_process_see_their_own_events_only() -> None:
    seen: dict[str, list[object]] = {"a": [], "b": []}
    both_listen = threading.Barrier(2)

    def run(name: str) -> None:
        observer = Observer(lambda event, facts: seen[name].append((facts["run_id"], facts["step"])), run_id=name)
        with observed(observer):
            both_listen.wait()
            for number in range(3):
                reach("maintain.step", step=f"{name}{number}")
            both_listen.wait()

    threads = [threading.Thread(target=run, args=(name,)) for name in seen]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == {name: [(name, f"{name}{number}") for number in range(3)] for name in seen}


def test_threads_of_a_pool_belong_to_the_run_that_submitted_the_work() -> None:
    seen: list[object] = []
    with ThreadPool(2) as pool:
        for name in ("a", "b"):
            with observed(Observer(lambda event, facts: seen.append((facts["run_id"], facts["step"])), run_id=name)):
                list(pool.map(lambda step: reach("maintain.step", step=step), [1, 2]))
    assert sorted(seen) == [("a", 1), ("a", 2), ("b", 1), ("b", 2)]


def test_a_part_of_a_run_that_names_its_observer_again_is_heard_once() -> None:
    seen: list[str] = []
    observer = Observer(lambda event, facts: seen.append(event))
    with observed(observer), observed(observer):
        reach("maintain.step", step="compact")
    assert seen == ["maintain.step"]


def test_without_a_run_events_have_no_run_id() -> None:
    seen: list[object] = []
    with listening(lambda event, facts: seen.append(facts["run_id"])):
        reach("maintain.step", step="compact")
    assert seen == [None]


def test_a_cancelled_run_ends_at_stopping_points_only_and_never_in_a_commit() -> None:
    observer = Observer()
    with observed(observer):
        stop_if_cancelled()
        observer.cancel()
        assert is_cancelled()
        reach("commit.send", snapshot_id=1)
        with uninterrupted():
            stop_if_cancelled()
            reach("maintain.step", step="compact")
        with pytest.raises(RunCancelled):
            reach("maintain.step", step="compact")
        with pytest.raises(RunCancelled):
            stop_if_cancelled()
    stop_if_cancelled()
