"""A writer that owns a range of keys: it appends, upserts and deletes, and checks its rows before every step."""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    write_manifest,
)
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation
from pyiceberg.typedef import Record

from tests.soak.journal import Journal, Step
from tests.soak.lake import KEYS_OF_A_WRITER, NAME, open_soak, rows_of
from tests.support.handmade import _delete_file, _DeleteManifestWriter, add_position_deletes, commit_manifests
from tests.support.oracle import entries, plain

_LARGEST_STATE = 60


class WrongRowsError(Exception):
    """The table does not hold what this writer was told that it holds."""


class Writer:
    """One writer process; a new one with the same number goes on where the killed one was."""

    def __init__(self, folder: Path, number: int, seed: int) -> None:
        self._lake = open_soak(folder)
        self._number = number
        self._random = random.Random(seed)
        self._journal = Journal(folder / f"writer-{number}.journal")

    def run(self, until: float) -> None:
        """Write until that moment of `time.time()`."""
        if self._journal.pending is not None:
            self._journal.settle(self._look_for(self._journal.pending))
        while time.time() < until:
            self._check()
            self._step()

    def _check(self) -> None:
        found, expected = rows_of(self._lake.load(NAME), self._number), sorted(self._journal.state.items())
        if found != expected:
            raise WrongRowsError(_difference(self._number, found, expected))

    def _look_for(self, step: Step) -> bool:
        """Whether a step without an answer is in the table: the rows are those before it, or those after it."""
        found = rows_of(self._lake.load(NAME), self._number)
        before = sorted(self._journal.state.items())
        after = sorted(step.applied_to(self._journal.state).items())
        if found not in (before, after):
            raise WrongRowsError(_difference(self._number, found, before) + f"\nor with {step}")
        return found == after

    def _step(self) -> None:
        table = self._lake.load(NAME)
        # What was read is what is built on: the commit fails if the table has moved since.
        table.refresh = lambda: table  # type: ignore[method-assign]
        number = self._journal.steps + 1
        part = self._random.randrange(2)
        mine = [key for key in self._journal.state if key % 2 == part]
        kind = self._random.choice(("append", "upsert", "upsert", "delete", "position", "position"))
        if len(self._journal.state) > _LARGEST_STATE:
            kind = "delete"
        if not mine or table.current_snapshot() is None:
            kind = "append"
        chosen = self._random.sample(mine, min(len(mine), self._random.randint(1, 8)))
        if kind == "append":
            first = self._number * KEYS_OF_A_WRITER + 2 * (number * 10) + part
            step = Step(number, put={first + 2 * i: f"{number}" for i in range(self._random.randint(1, 6))})
            self._try(step, lambda: _row_delta(table, part, step))
        elif kind == "upsert":
            step = Step(number, drop=tuple(chosen), put=dict.fromkeys(chosen, f"{number}"))
            self._try(step, lambda: _row_delta(table, part, step))
        elif kind == "delete":
            step = Step(number, drop=tuple(chosen))
            self._try(step, lambda: _row_delta(table, part, step))
        else:
            positions = self._positions(table, set(chosen))
            if positions:
                keys = tuple(key for path in positions for key in positions[path].values())
                where = {path: list(found) for path, found in positions.items()}
                scoped = self._random.choice((True, False))
                self._try(Step(number, drop=keys), lambda: add_position_deletes(table, where, scoped=scoped))

    def _try(self, step: Step, commit: Callable[[], object]) -> None:
        self._journal.intend(step)
        try:
            commit()
        except Exception:
            self._journal.settle(self._look_for(step))
        else:
            self._journal.settle(True)

    def _positions(self, table: Table, keys: set[int]) -> dict[str, dict[int, int]]:
        """Where those keys live now: position to key for each file."""
        snapshot = table.current_snapshot()
        assert snapshot is not None
        found: dict[str, dict[int, int]] = {}
        try:
            for entry in entries(table, snapshot_id=snapshot.snapshot_id):
                if entry["data_file"]["content"] != 0:
                    continue
                path = entry["data_file"]["file_path"]
                content = pq.ParquetFile(plain(path)).read(columns=["id", "value"]).to_pylist()
                for position, row in enumerate(content):
                    # A value is written once: an older version of the row has another one.
                    if row["id"] in keys and self._journal.state[row["id"]] == row["value"]:
                        found.setdefault(path, {})[position] = row["id"]
        except FileNotFoundError:
            return {}
        return found


def _difference(writer: int, found: list[tuple[int, str]], expected: list[tuple[int, str]]) -> str:
    lost = sorted(set(expected) - set(found))
    risen = sorted(set(found) - set(expected))
    doubled = sorted({row for row in found if found.count(row) > 1})
    return f"writer {writer}: lost {lost}, not to be there {risen}, doubled {doubled}"


def _row_delta(table: Table, part: int, step: Step) -> None:
    """Keys out and rows in, in one commit: the deletes have the sequence number of the rows that they must spare."""
    metadata = table.metadata
    parent = metadata.snapshot_by_name("main")
    snapshot_id = metadata.new_snapshot_id()
    manifests = list(parent.manifests(table.io)) if parent else []
    if step.put:
        manifests.append(_data_manifest(table, part, step, snapshot_id))
    if step.drop:
        manifests.append(_delete_manifest(table, part, step, snapshot_id))
    commit_manifests(table, manifests, snapshot_id, Operation.OVERWRITE, {}, "main")


def _data_manifest(table: Table, part: int, step: Step, snapshot_id: int) -> ManifestFile:
    schema = table.schema().as_arrow()
    rows = [{"id": key, "part": part, "value": value} for key, value in step.put.items()]
    path = f"{table.location()}/data/part={part}/{uuid.uuid4()}.parquet"
    with table.io.new_output(path).create() as sink:
        pq.write_table(pa.Table.from_pylist(rows, schema=schema), sink)
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=Record(part),
        record_count=len(rows),
        file_size_in_bytes=len(table.io.new_input(path)),
        sort_order_id=0,
    )
    file.spec_id = 0
    output = table.io.new_output(f"{table.location()}/metadata/{uuid.uuid4()}-m0.avro")
    with write_manifest(2, table.spec(), table.schema(), output, snapshot_id, "deflate") as writer:
        writer.add_entry(
            ManifestEntry.from_args(status=ManifestEntryStatus.ADDED, snapshot_id=snapshot_id, data_file=file)
        )
    return writer.to_manifest_file()


def _delete_manifest(table: Table, part: int, step: Step, snapshot_id: int) -> ManifestFile:
    schema = table.schema().select("id").as_arrow()
    keys = pa.Table.from_pylist([{"id": key} for key in step.drop], schema=schema)
    file = _delete_file(table, keys, DataFileContent.EQUALITY_DELETES, 0, Record(part), ({}, {}), equality_ids=[1])
    output = table.io.new_output(f"{table.location()}/metadata/{uuid.uuid4()}-d0.avro")
    with _DeleteManifestWriter(table.spec(), table.schema(), output, snapshot_id, "deflate") as writer:
        writer.add_entry(
            ManifestEntry.from_args(status=ManifestEntryStatus.ADDED, snapshot_id=snapshot_id, data_file=file)
        )
    return writer.to_manifest_file()
