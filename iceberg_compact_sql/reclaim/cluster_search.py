"""Search for orphans on the cluster, for tables with too many files for the driver's memory.

Each task lists one prefix or reads some manifests. Spark joins the listed and the named files. Only files that no
metadata names are returned to the driver.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from iceberg_compact_sql.errors import IcebergCompactError
from iceberg_compact_sql.reclaim.damage_checks import named_by_manifests, refuse_missing_files
from iceberg_compact_sql.reclaim.known_files import ANY_PREFIX, Identity, KnownFiles
from iceberg_compact_sql.reclaim.reachability import ManifestRef, Reachability
from iceberg_compact_sql.storage.file_io import open_file_io
from iceberg_compact_sql.storage.locations import join
from iceberg_compact_sql.storage.protocol import StoredFile
from iceberg_compact_sql.storage.stores import Stores

# The driver can hold a few million paths; with more files the search runs on the cluster.
DEFAULT_DRIVER_FILES = 3_000_000
_PREFIXES = 64
_DEPTH = 4
_BATCH_ROWS = 10_000
_LISTED = "path string, size_bytes bigint, modified_ms bigint, prefix string, plain string, loose string"
_NAMED = "prefix string, plain string, loose string"
_MANIFESTS = "path string, size_bytes bigint, spec_id int, counts array<bigint>"
_CHECKED = "path string"
# The rule of `covers` in SQL: a scheme or authority that the metadata leaves out matches every listed one.
_NOT_COVERED = (
    "prefixes IS NULL OR NOT arrays_overlap("
    f"prefixes, array(prefix, concat(substring_index(prefix, '{ANY_PREFIX}', 1), '{ANY_PREFIX}'), '{ANY_PREFIX}'))"
)
_NOTHING_DELETED = "Nothing was deleted. Run it again, or clean one location at a time."
Batches = Iterator[pa.RecordBatch]


class Workers(Protocol):
    """The part of Spark that a search needs: the session, and a way to run functions on the executors."""

    spark: Any

    def jobs(self, text: str) -> AbstractContextManager[None]:
        """Show `text` in Spark's UI for the jobs of the block, and cancel them when the run is cancelled."""
        ...

    def map_batches(
        self, frame: Any, function: Callable[[Any, Batches], Batches], argument: object, schema: str
    ) -> Any:
        """Return a frame of `function(argument, batches)`; the executors need not have this package."""
        ...

    def failure(self, work: str, error: Exception, hint: str) -> IcebergCompactError:
        """Return the error that the user sees after a job of `work` failed; raises if the run was cancelled."""
        ...


@dataclass(frozen=True)
class ClusterWork:
    """The input of every task: how to reach the files, and which schemes and authorities are equal. Pickled by value.

    Its text form shows only the root, because the properties hold credentials. `is_visible` gets each path relative to
    the root, level by level: only visible folders are listed.
    """

    io_properties: Mapping[str, str]
    root: str
    is_visible: Callable[[str], bool]
    equal_schemes: Mapping[str, str]
    equal_authorities: Mapping[str, str]

    def stores(self) -> Stores:
        return Stores(open_file_io(self.io_properties, self.root))

    def names(self) -> KnownFiles:
        return KnownFiles(self.equal_schemes, self.equal_authorities)

    def __repr__(self) -> str:
        return f"ClusterWork({self.root!r})"


@dataclass(frozen=True)
class ClusterFindings:
    """Listed files that no metadata names, and those of them that may be needed files under another name."""

    listed: int
    unknown: tuple[StoredFile, ...]
    # Listed paths that the metadata names under other schemes or authorities, with those prefixes.
    other_prefixes: tuple[tuple[str, tuple[str, ...]], ...]
    # Listed paths that may be named with another encoding, folding or normal form.
    other_spellings: tuple[str, ...]


def search_on_cluster(
    workers: Workers, work: ClusterWork, stores: Stores, manifests: Sequence[ManifestRef], named: Iterable[Identity]
) -> ClusterFindings:
    """Compare everything below the root with everything that the manifests and `named` name.

    Raises IcebergCompactError if a listing or a manifest cannot be read. Deletes nothing.
    """
    files, prefixes = _split_root(stores, work)
    try:
        with workers.jobs(f"remove_orphans {work.root}: listing"):
            return _compare(workers, work, files, prefixes, manifests, named)
    except IcebergCompactError:
        raise
    except Exception as error:
        raise workers.failure("listing", error, _NOTHING_DELETED) from error


def _compare(
    workers: Workers,
    work: ClusterWork,
    files: Sequence[StoredFile],
    prefixes: Sequence[str],
    manifests: Sequence[ManifestRef],
    named: Iterable[Identity],
) -> ClusterFindings:
    spark = workers.spark
    folders = _one_task_for_each(spark, [(prefix,) for prefix in prefixes], "prefix string")
    listed = workers.map_batches(folders, list_prefixes, work, _LISTED)
    if files:
        rows = [(f.path, f.size_bytes, f.modified_ms, *work.names().identity(f.path)) for f in files]
        listed = listed.unionAll(spark.createDataFrame(rows, _LISTED))
    rows_of_manifests = [(m.path, m.size_bytes, m.spec_id, list(m.counts)) for m in manifests]
    unread = _one_task_for_each(spark, rows_of_manifests, _MANIFESTS)
    content = workers.map_batches(unread, read_manifests, work, _NAMED)
    other_named = spark.createDataFrame([tuple(identity) for identity in named], _NAMED)
    needed = content.unionAll(other_named)
    listed = listed.persist()
    try:
        by_path = needed.groupBy("plain").agg({"prefix": "collect_set"}).toDF("plain", "prefixes")
        unknown = listed.join(by_path, "plain", "left").where(_NOT_COVERED).persist()
        try:
            count = listed.count()
            unknown_rows = unknown.select("path", "size_bytes", "modified_ms").collect()
            prefixed = unknown.where("prefixes IS NOT NULL").select("path", "prefixes").collect()
            similar = unknown.where("prefixes IS NULL").join(needed.select("loose").distinct(), "loose")
            respelled = similar.select("path").distinct().collect()
        finally:
            unknown.unpersist()
    finally:
        listed.unpersist()
    if unknown_rows:
        workers.map_batches(unread, check_named_files, work, _CHECKED).collect()
    return ClusterFindings(
        count,
        tuple(StoredFile(*row) for row in unknown_rows),
        tuple((path, tuple(sorted(prefixes))) for path, prefixes in prefixed),
        tuple(sorted(row[0] for row in respelled)),
    )


def _split_root(stores: Stores, work: ClusterWork) -> tuple[list[StoredFile], list[str]]:
    """Return the files in the upper folders, and enough folders below them to keep a cluster busy."""
    files: list[StoredFile] = []
    prefixes = [""]
    for _ in range(_DEPTH):
        if len(prefixes) >= _PREFIXES or not prefixes:
            break
        deeper: list[str] = []
        for prefix in prefixes:
            folder = join(work.root, prefix) if prefix else work.root
            level_files, subfolders = stores.of(folder).level(folder)
            files += [f for f in level_files if work.is_visible(f"{prefix}/{f.path.rsplit('/', 1)[-1]}".lstrip("/"))]
            names = (f"{prefix}/{subfolder}".lstrip("/") for subfolder in subfolders)
            deeper += [name for name in names if work.is_visible(name)]
        prefixes = deeper
    return files, prefixes


def _one_task_for_each(spark: Any, rows: list[tuple[Any, ...]], schema: str) -> Any:
    frame = spark.createDataFrame(rows, schema)
    return frame.repartition(max(1, min(len(rows), 1000)))


def list_prefixes(work: ClusterWork, batches: Batches) -> Batches:
    """List the files below each given prefix; runs on the executors."""
    stores, names = work.stores(), work.names()
    for batch in batches:
        for prefix in batch.column(0).to_pylist():
            listed = stores.walk(
                join(work.root, prefix),
                lambda relative, prefix=prefix: work.is_visible(f"{prefix}/{relative}"),  # type: ignore[misc]
            )
            rows = ((f.path, f.size_bytes, f.modified_ms, *names.identity(f.path)) for f in listed)
            yield from _in_batches(rows, _LISTED)


def read_manifests(work: ClusterWork, batches: Batches) -> Batches:
    """Read the given manifests and return the identities of the files that they name; runs on the executors."""
    reader, names = Reachability(work.stores()), work.names()
    for batch in batches:
        named = (
            identity
            for file in reader.content_of(_manifests_in(batch))
            for identity in names.needed_identities(file.path)
        )
        yield from _in_batches(named, _NAMED)


def check_named_files(work: ClusterWork, batches: Batches) -> Batches:
    """Raise if a given manifest names a file that does not exist; returns no rows; runs on the executors."""
    stores = work.stores()
    reader = Reachability(stores)
    for batch in batches:
        refuse_missing_files(stores, named_by_manifests(reader, _manifests_in(batch)), [work.root], work.root)
    yield from ()


def _manifests_in(batch: pa.RecordBatch) -> list[ManifestRef]:
    return [ManifestRef(r["path"], r["size_bytes"], r["spec_id"], tuple(r["counts"])) for r in batch.to_pylist()]


def _in_batches(rows: Iterable[tuple[Any, ...]], schema: str) -> Batches:
    columns = [pair.split() for pair in schema.split(",")]
    types = {"string": pa.string(), "bigint": pa.int64()}
    arrow = pa.schema([(name, types[kind]) for name, kind in columns])
    waiting: list[tuple[Any, ...]] = []
    for row in rows:
        waiting.append(row)
        if len(waiting) == _BATCH_ROWS:
            yield _batch(waiting, arrow)
            waiting = []
    if waiting:
        yield _batch(waiting, arrow)


def _batch(rows: list[tuple[Any, ...]], schema: pa.Schema) -> pa.RecordBatch:
    arrays = [pa.array(column, field.type) for column, field in zip(zip(*rows, strict=True), schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
