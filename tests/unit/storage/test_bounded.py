"""A store that carries out an operation after its caller has given up: nothing is lost, and nothing is done twice."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from fsspec.implementations.local import LocalFileSystem
from pyiceberg.exceptions import CommitStateUnknownException
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from iceberg_compact_sql.catalogs.hadoop import HadoopCatalog
from iceberg_compact_sql.catalogs.open_table import close_catalogs
from iceberg_compact_sql.errors import CommitUnknownError
from iceberg_compact_sql.storage import open_store
from iceberg_compact_sql.storage.file_io import ExactFileIO
from iceberg_compact_sql.storage.kinds.bounded import BoundedStore
from iceberg_compact_sql.storage.kinds.fsspec import FsspecStore
from iceberg_compact_sql.storage.local import LocalStore
from iceberg_compact_sql.storage.protocol import UnansweredError
from iceberg_compact_sql.storage.request_timeouts import RequestTimeouts
from iceberg_compact_sql.storage.stores import Stores
from tests.support.calls import call
from tests.support.plain import PlainLake

SHORT = RequestTimeouts(answer_seconds=0.2, attempts=1, commit_seconds=0.2)
ROWS = pa.table({"id": list(range(100))})
AT_ONCE = {"commit.retry.num-retries": "0", "commit.status-check.num-retries": "0"}


class Delay:
    """Holds operations up until `release` is called, which waits until they have ended."""

    def __init__(self) -> None:
        self.calls = 0
        self._released = threading.Event()
        self._workers: list[threading.Thread] = []

    def __call__(self, work: Callable[..., Any], *arguments: Any) -> Any:
        self.calls += 1
        self._workers.append(threading.current_thread())
        assert self._released.wait(60)
        return work(*arguments)

    def release(self) -> None:
        self._released.set()
        for worker in self._workers:
            worker.join(60)


class LateCreates(LocalStore):
    """A local disk on which files are created late."""

    def __init__(self, delay: Delay) -> None:
        super().__init__()
        self._delay = delay

    def create(self, path: str, content: bytes) -> bool:
        return bool(self._delay(super().create, path, content))


class LateCopies(LocalFileSystem):  # type: ignore[misc]
    """A file system that moves by copying, late."""

    cachable = False

    def __init__(self, delay: Delay) -> None:
        super().__init__(auto_mkdir=True)
        self._delay = delay

    def cp_file(self, path1: str, path2: str, **options: Any) -> None:
        self._delay(super().cp_file, path1, path2)


def test_a_file_that_may_still_be_created_is_an_unknown_outcome(tmp_path: Path) -> None:
    delay = Delay()
    store = BoundedStore(LateCreates(delay), SHORT)
    with pytest.raises(CommitStateUnknownException, match=r"did not say whether file:.*/v2 was created"):
        store.create(f"file://{tmp_path}/v2", b"late")
    delay.release()
    assert (tmp_path / "v2").read_bytes() == b"late"


def test_a_late_commit_of_a_hadoop_table_loses_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = HadoopCatalog("plain", warehouse=str(tmp_path))
    catalog.create_namespace("db")
    table = catalog.create_table("db.t", Schema(NestedField(1, "id", LongType())), properties=AT_ONCE)
    for _ in range(5):
        table.append(ROWS)
    conf = {"spark.sql.catalog.plain.type": "hadoop", "spark.sql.catalog.plain.warehouse": str(tmp_path)}
    delay = Delay()
    monkeypatch.setattr(open_store, "LocalStore", lambda: BoundedStore(LateCreates(delay), SHORT))
    close_catalogs()
    with pytest.raises(CommitUnknownError, match=r"No file was deleted; look for snapshot \d+") as caught:
        call(PlainLake("plain", catalog, tmp_path, conf), "CALL compact_table('db.t')")  # type: ignore[arg-type]
    assert catalog.load_table("db.t").metadata == table.metadata
    delay.release()
    fresh = catalog.load_table("db.t")
    snapshot = fresh.current_snapshot()
    assert snapshot is not None and str(snapshot.snapshot_id) in str(caught.value)
    assert len(list(fresh.scan().plan_files())) == 1
    assert sorted(fresh.scan().to_arrow()["id"].to_pylist()) == sorted([*range(100)] * 5)
    close_catalogs()


def test_a_late_move_is_not_repeated_and_keeps_its_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A restore may have brought the file back: the second step of the late move would delete it."""
    (tmp_path / "a").write_bytes(b"content")
    delay = Delay()
    monkeypatch.setattr(open_store, "LocalStore", lambda: BoundedStore(FsspecStore(LateCopies(delay)), SHORT))
    stores = Stores(ExactFileIO())
    # The store answers other requests meanwhile, so it does not count as silent.
    monkeypatch.setattr(stores, "_fell_silent", lambda *_: False)
    with pytest.raises(UnansweredError, match=r"did not answer within 0\.2 s"):
        stores.move(f"file://{tmp_path}/a", f"file://{tmp_path}/aside/a")
    assert delay.calls == 1
    delay.release()
    assert (tmp_path / "a").read_bytes() == (tmp_path / "aside" / "a").read_bytes() == b"content"
