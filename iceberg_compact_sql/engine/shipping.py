"""What goes to a Spark worker and comes back: plain bytes, and our own package for workers that lack it."""

from __future__ import annotations

import functools
import io
import pickle
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from iceberg_compact_sql.rewrite.task import RewriteFailure, RewriteJob, RewriteResult, RewriteTask

RESULT_SCHEMA = "attempt int, missing string, payload binary"


def packed(value: RewriteJob | RewriteTask) -> bytes:
    """Small: paths of one table have much in common."""
    return zlib.compress(pickle.dumps(value, protocol=4), 1)


def unpacked_result(payload: bytes) -> RewriteResult | RewriteFailure:
    result = pickle.loads(zlib.decompress(payload))
    assert isinstance(result, RewriteResult | RewriteFailure)
    return result


@functools.cache
def package_archive() -> bytes:
    """This package's Python sources as a zip."""
    root = Path(__file__).parents[1]
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for source in sorted(root.rglob("*.py")):
            # A fixed time, so that equal sources give equal bytes.
            info = zipfile.ZipInfo(str(source.relative_to(root.parent)), (2020, 1, 1, 0, 0, 0))
            archive.writestr(info, source.read_bytes(), zipfile.ZIP_DEFLATED)
    return stream.getvalue()


def worker_function(
    job_bytes: bytes, task_bytes: Sequence[bytes], *, prefer_shipped: bool
) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """The function for `mapInArrow`: row id N does task N and answers with one row.

    It is pickled by value and names nothing outside itself, so a worker needs pyarrow and pyiceberg only; where one
    of them is missing the row says which.
    """
    archive = package_archive()
    tasks = list(task_bytes)

    def rewrite(batches: Iterator[Any]) -> Iterator[Any]:
        import atexit
        import importlib.util
        import pathlib
        import pickle
        import shutil
        import sys
        import tempfile
        import zlib

        import pyarrow as pa

        def answer(missing: str | None, payload: bytes | None) -> Any:
            # A Spark worker has loaded pyspark long before; this room does not import it.
            context = sys.modules["pyspark"].TaskContext.get()
            attempt = context.attemptNumber() if context is not None else 0
            columns = [
                pa.array([attempt], pa.int32()),
                pa.array([missing], pa.string()),
                pa.array([payload], pa.binary()),
            ]
            return pa.RecordBatch.from_arrays(columns, names=["attempt", "missing", "payload"])

        for needed in ("pyiceberg", "numpy", "pyroaring"):
            if importlib.util.find_spec(needed) is None:
                for _ in batches:
                    pass
                yield answer(needed, None)
                return
        loaded = "iceberg_compact_sql" in sys.modules
        if not loaded and (prefer_shipped or importlib.util.find_spec("iceberg_compact_sql") is None):
            # A folder of this process alone: nobody else can put code there.
            folder = tempfile.mkdtemp()
            atexit.register(shutil.rmtree, folder, ignore_errors=True)
            path = pathlib.Path(folder, "iceberg_compact_sql.zip")
            path.write_bytes(archive)
            sys.path.insert(0, str(path))
        from iceberg_compact_sql.rewrite.run_task import run_task

        job = pickle.loads(zlib.decompress(job_bytes))
        for batch in batches:
            for number in batch.column(0).to_pylist():
                result = run_task(job, pickle.loads(zlib.decompress(tasks[number])))
                yield answer(None, zlib.compress(pickle.dumps(result, protocol=4), 1))

    return rewrite
