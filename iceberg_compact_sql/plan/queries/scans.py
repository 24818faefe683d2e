"""Executed scans of one table, from the events of a Spark event log."""

from __future__ import annotations

import json
import re
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, BinaryIO

_MOST_LINE_BYTES = 64 << 20
_WANTED = (
    "SparkListenerLogStart",
    "SparkListenerSQLExecutionStart",
    "SparkListenerSQLAdaptiveExecutionUpdate",
    "SparkListenerDriverAccumUpdates",
    "SparkListenerJobStart",
    "SparkListenerStageCompleted",
)
# The name is always the first key: other events, most of a log, are never parsed.
_HEAD = re.compile(rb'\{"Event":"(?:org\.apache\.spark\.[\w.]*\.)?(?:' + "|".join(_WANTED).encode() + rb')"')
_NEW_NODE = re.compile(
    r"Iceberg(?P<kind>\w*)Scan\(table=(?P<table>[^,]*), (?:schemaId=-?\d+, )?(?:snapshotId=\w+, )?(?:branch=[^,]*, )?"
    r"filters=(?P<filters>.*?)(?:, runtimeFilters=(?P<runtime>.*?))?, groupedBy=[^)]*\)"
    r"(?: RuntimeFilters: \[(?P<pruning>.*)\])?$",
    re.DOTALL,
)
_METRICS = {
    "number of output rows": "rows",
    "number of file splits read": "splits",
    "number of result data files": "files",
    "total data file size (bytes)": "bytes",
}
_PASSED_THROUGH = ("InputAdapter", "ColumnarToRow", "Project")
# Stages may complete, and plans may be updated, after later executions have begun.
_OPEN_EXECUTIONS = 200
_REMEMBERED = 20_000


@dataclass(slots=True)
class Scan:
    """One executed scan. `filters` holds literals: it stays in memory and is shown to nobody."""

    filters: str = field(repr=False)
    time_ms: int
    files: int | None = None
    bytes: int | None = None
    rows: int | None = None
    kept: int | None = None
    cpu_ns: int = 0
    runtime_filter: bool = False
    write: bool = False


@dataclass(slots=True)
class LogFacts:
    """What one log says about itself: Spark's version, the tables that it names, and whether it has any event."""

    version: str | None = None
    tables: set[str] = field(default_factory=set)
    events: int = 0


@dataclass(slots=True)
class _Execution:
    time_ms: int = 0
    write: bool = False
    scans: dict[int, tuple[re.Match[str], dict[str, int]]] = field(default_factory=dict)
    values: dict[int, int] = field(default_factory=dict)
    cpu: dict[int, int] = field(default_factory=dict)


def read_events(stream: BinaryIO) -> Iterator[dict[str, Any]]:
    """Yield the events that matter; a line that is cut or damaged is left out."""
    while line := stream.readline(_MOST_LINE_BYTES):
        if not line.endswith(b"\n") and len(line) == _MOST_LINE_BYTES:
            while (more := stream.readline(_MOST_LINE_BYTES)) and not more.endswith(b"\n"):
                pass
            continue
        if _HEAD.match(line):
            try:
                event = json.loads(line)
            except ValueError:
                continue
            if isinstance(event, dict):
                yield event


def read_scans(events: Iterator[dict[str, Any]], identifier: str, facts: LogFacts) -> Iterator[Scan]:
    """Yield the executed scans of a table, `db.events`, in any catalog; fills `facts`.

    A scan is known by the accumulator of its row count: plan updates repeat it, and a second run of a DataFrame shares
    it. It ran in an execution if a stage of that execution filled the accumulator, or if it was planned with no file.
    """
    executions: OrderedDict[int, _Execution] = OrderedDict()
    execution_of_stage: dict[int, int] = {}
    planned: OrderedDict[int, dict[str, int | None]] = OrderedDict()
    for event in events:
        facts.events += 1
        kind = str(event.get("Event")).rpartition(".")[2]
        try:
            if kind == "SparkListenerLogStart":
                facts.version = str(event.get("Spark Version"))
            elif "executionId" in event:
                execution = executions.setdefault(int(event["executionId"]), _Execution())
                if "sparkPlanInfo" in event:
                    _read_plan(event, execution, identifier, facts)
                else:
                    execution.values.update((int(key), int(value)) for key, value in event["accumUpdates"])
            elif kind == "SparkListenerJobStart":
                number = (event.get("Properties") or {}).get("spark.sql.execution.id")
                if number is not None:
                    execution_of_stage.update((int(stage), int(number)) for stage in event["Stage IDs"])
            elif kind == "SparkListenerStageCompleted":
                _read_stage(event["Stage Info"], executions, execution_of_stage)
        except (KeyError, TypeError, ValueError):
            # An event of another shape: nothing is known from it.
            continue
        while len(executions) > _OPEN_EXECUTIONS:
            yield from _finished(executions.popitem(last=False)[1], planned)
    for execution in executions.values():
        yield from _finished(execution, planned)


def _read_plan(event: Mapping[str, Any], execution: _Execution, identifier: str, facts: LogFacts) -> None:
    execution.time_ms = int(event.get("time", execution.time_ms))
    for node, above in _nodes(event["sparkPlanInfo"], None):
        execution.write |= node["nodeName"] in ("WriteDelta", "ReplaceData")
        if not str(node["nodeName"]).startswith("BatchScan"):
            continue
        match = _NEW_NODE.search(node["simpleString"])
        if match is None:
            continue
        facts.tables.add(match["table"])
        # Changelog and incremental scans follow snapshots: no layout changes what they read.
        if match["kind"] not in ("", "CopyOnWrite") or match["table"].partition(".")[2] != identifier:
            continue
        ids = {_METRICS[m["name"]]: int(m["accumulatorId"]) for m in node["metrics"] if m["name"] in _METRICS}
        if above is not None:
            kept = [int(m["accumulatorId"]) for m in above["metrics"] if m["name"] == "number of output rows"]
            ids.update(("kept", number) for number in kept[:1])
        if "rows" in ids:
            # The last text of a node wins: only that one has the values of runtime filters.
            execution.scans[ids["rows"]] = (match, {**execution.scans.get(ids["rows"], (match, {}))[1], **ids})


def _nodes(node: Any, above: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every node with the filter right above it, whose row count is what the query kept."""
    waiting = [(node, above)]
    while waiting:
        node, above = waiting.pop()
        yield node, above
        name = str(node["nodeName"])
        passes = name in _PASSED_THROUGH or name.startswith("WholeStage")
        over = node if name == "Filter" else above if passes else None
        waiting.extend((child, over) for child in node.get("children", ()))


def _read_stage(info: Mapping[str, Any], executions: Mapping[int, _Execution], stages: dict[int, int]) -> None:
    execution = executions.get(stages.pop(int(info["Stage ID"]), -1))
    if execution is None:
        return
    values = info["Accumulables"]
    cpu = sum(int(each["Value"]) for each in values if each["Name"] == "internal.metrics.executorCpuTime")
    for each in values:
        if each.get("Metadata") == "sql" and str(each["Value"]).lstrip("-").isdigit():
            # The value so far, over all stages: the last one is the sum.
            execution.values[int(each["ID"])] = int(each["Value"])
            execution.cpu[int(each["ID"])] = execution.cpu.get(int(each["ID"]), 0) + cpu


def _finished(execution: _Execution, planned: OrderedDict[int, dict[str, int | None]]) -> Iterator[Scan]:
    for rows_id, (match, ids) in execution.scans.items():
        figures = {name: execution.values.get(number) for name, number in ids.items()}
        if figures.get("files") is not None:
            planned[rows_id] = {name: figures.get(name) for name in ("files", "bytes")}
            if len(planned) > _REMEMBERED:
                planned.popitem(last=False)
        else:
            # Figures of planning are posted once: a second run of a DataFrame has none.
            figures.update(planned.get(rows_id, {}))
        stages = [execution.cpu[number] for number in (rows_id, ids.get("splits", -1)) if number in execution.cpu]
        if not stages and figures.get("files") != 0:
            # Replaced by another plan, read from a cache, or failed.
            continue
        yield Scan(
            match["filters"],
            execution.time_ms,
            figures.get("files"),
            figures.get("bytes"),
            figures.get("rows") or 0,
            figures.get("kept"),
            stages[0] if stages else 0,
            bool(match["runtime"]) or "dynamicpruning" in (match["pruning"] or ""),
            execution.write,
        )
