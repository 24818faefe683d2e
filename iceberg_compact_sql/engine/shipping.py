"""Runs functions of this package on Spark's Python workers, where the package need not be installed.

The function given to Spark is pickled by value and refers to nothing outside itself. It contains our sources as a zip,
and imports the wanted function by name.
"""

from __future__ import annotations

import contextlib
import functools
import io
import pickle
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from iceberg_compact_sql import events
from iceberg_compact_sql.engine.cluster import Cluster
from iceberg_compact_sql.engine.job_labels import described, interrupted_when_cancelled
from iceberg_compact_sql.engine.spark_errors import NEEDED_PACKAGES, describe_error, missing_package
from iceberg_compact_sql.errors import IcebergCompactError

Batches = Iterator[Any]


def packed(value: object) -> bytes:
    """Pickle and compress a value for the workers. Paths of one table compress well."""
    return zlib.compress(pickle.dumps(value, protocol=4), 1)


def unpacked(payload: bytes) -> Any:
    """Return the value that was passed to `packed`."""
    return pickle.loads(zlib.decompress(payload))


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


def code_loader(*, prefer_shipped: bool) -> Callable[[str, str], Any]:
    """Return a function that gives a function of this package by module and name, also where it is not installed.

    It can be pickled by value, so a closure or a class that Spark ships can hold it. With `prefer_shipped` the workers
    use our sources even where they have a package of this name. A worker needs pyarrow, pyiceberg and their
    dependencies. If one of them is missing, it raises an error that `missing_package` recognizes.
    """
    archive, needed_packages = package_archive(), NEEDED_PACKAGES

    def load(module_name: str, function_name: str) -> Any:
        import atexit
        import importlib
        import importlib.util
        import pathlib
        import shutil
        import sys
        import tempfile

        for needed in needed_packages:
            if importlib.util.find_spec(needed) is None:
                raise ModuleNotFoundError(f"No module named '{needed}'")
        loaded = "iceberg_compact_sql" in sys.modules
        if not loaded and (prefer_shipped or importlib.util.find_spec("iceberg_compact_sql") is None):
            # A private folder of this process: no other user can put code there.
            folder = tempfile.mkdtemp()
            atexit.register(shutil.rmtree, folder, ignore_errors=True)
            path = pathlib.Path(folder, "iceberg_compact_sql.zip")
            path.write_bytes(archive)
            sys.path.insert(0, str(path))
        return getattr(importlib.import_module(module_name), function_name)

    return load


def shipped(
    function: Callable[[Any, Batches], Batches], argument: object, *, prefer_shipped: bool
) -> Callable[[Batches], Batches]:
    """Return what `mapInArrow` takes to run `function(argument, batches)` on the workers; see `code_loader`.

    `function` is at the top level of a module of this package.
    """
    load = code_loader(prefer_shipped=prefer_shipped)
    module_name, function_name, payload = function.__module__, function.__name__, packed(argument)

    def run(batches: Iterator[Any]) -> Iterator[Any]:
        import pickle
        import zlib

        work = load(module_name, function_name)
        # Unpickled after the load: the argument's classes are ours.
        yield from work(pickle.loads(zlib.decompress(payload)), batches)

    return run


class SparkWorkers:
    """The Python workers of a session: runs functions of this package there, and explains their errors."""

    def __init__(self, spark: Any) -> None:
        self.spark = spark

    @functools.cached_property
    def cluster(self) -> Cluster:
        """The cluster of the session; read once."""
        return Cluster.of(self.spark)

    @contextlib.contextmanager
    def jobs(self, text: str) -> Iterator[None]:
        """Show `text` in Spark's UI for the jobs of the block, and cancel them when the run is cancelled."""
        with described(self.spark, text), interrupted_when_cancelled(self.spark):
            yield

    def map_batches(
        self, frame: Any, function: Callable[[Any, Batches], Batches], argument: object, schema: str
    ) -> Any:
        """Return a frame of `function(argument, batches)` over the Arrow batches of each partition of `frame`."""
        return frame.mapInArrow(shipped(function, argument, prefer_shipped=not self.cluster.is_local), schema)

    def failure(self, work: str, error: Exception, hint: str) -> IcebergCompactError:
        """Return the error for the user when a job of `work` failed; raises RunCancelled for a cancelled run."""
        events.stop_if_cancelled()
        return missing_package(error) or IcebergCompactError(
            f"{work} on the cluster failed: {describe_error(error)}", hint=hint
        )
