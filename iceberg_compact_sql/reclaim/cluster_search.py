"""Listing and comparing on the cluster, for tables whose files are too many for the driver's memory.

Tasks list one prefix or read some manifests each; Spark joins the two sides. Only what no metadata names comes back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyiceberg.io import load_file_io

from iceberg_compact_sql.errors import IcebergCompactError
from iceberg_compact_sql.reclaim.known_files import ValidFiles
from iceberg_compact_sql.reclaim.reachability import ManifestRef, Reachability
from iceberg_compact_sql.storage.locations import join
from iceberg_compact_sql.storage.stores import StoredFile, Stores

# A driver holds some millions of paths with ease; above it the cluster does the work.
DEFAULT_DRIVER_FILES = 3_000_000
_PREFIXES = 64
_DEPTH = 4
_BATCH_ROWS = 10_000
_LISTED = "path string, size_bytes bigint, modified_ms bigint, exact string, plain string, loose string"
_NAMED = "exact string, plain string, loose string"
Batches = Iterator[pa.RecordBatch]


@dataclass(frozen=True)
class ClusterWork:
    """What a task needs to know: how to reach the files, and which spellings are the same. Never shown."""

    io_properties: Mapping[str, str]
    root: str
    hidden: Callable[[str], bool]
    equal_schemes: Mapping[str, str]
    equal_authorities: Mapping[str, str]

    def stores(self) -> Stores:
        return Stores(load_file_io(dict(self.io_properties), self.root))

    def names(self) -> ValidFiles:
        return ValidFiles(self.equal_schemes, self.equal_authorities)

    def __repr__(self) -> str:
        return f"ClusterWork({self.root!r})"


@dataclass(frozen=True)
class ClusterFindings:
    """What is listed and named nowhere, and what may be a needed file under another name."""

    listed: int
    unknown: tuple[StoredFile, ...]
    # (listed path, whether the metadata names this very path under another scheme or authority)
    doubts: tuple[tuple[str, bool], ...]


def search_on_cluster(
    spark: Any, work: ClusterWork, stores: Stores, manifests: Sequence[ManifestRef], named: Iterable[str]
) -> ClusterFindings:
    """Compare everything below the root with everything that the manifests and `named` name."""
    files, prefixes = _seeds(stores, work)
    listed = _spread(spark, [(prefix,) for prefix in prefixes], "prefix string").mapInArrow(_lister(work), _LISTED)
    if files:
        rows = [(f.path, f.size_bytes, f.modified_ms, *work.names().identity(f.path)) for f in files]
        listed = listed.unionAll(spark.createDataFrame(rows, _LISTED))
    pairs = [(manifest.path, manifest.size_bytes, manifest.spec_id) for manifest in manifests]
    content = _spread(spark, pairs, "path string, size_bytes bigint, spec_id int").mapInArrow(_reader(work), _NAMED)
    others = spark.createDataFrame([work.names().identity(path) for path in named], _NAMED)
    needed = content.unionAll(others)
    listed = listed.persist()
    try:
        unknown = listed.join(needed.select("exact"), "exact", "left_anti").persist()
        try:
            count = listed.count()
            found = unknown.select("path", "size_bytes", "modified_ms").collect()
            twins = needed.select("loose", needed["plain"].alias("named_plain")).distinct()
            doubted = unknown.join(twins, "loose").selectExpr("path", "plain = named_plain").distinct().collect()
        finally:
            unknown.unpersist()
    finally:
        listed.unpersist()
    return ClusterFindings(count, tuple(StoredFile(*row) for row in found), tuple((r[0], r[1]) for r in doubted))


def _seeds(stores: Stores, work: ClusterWork) -> tuple[list[StoredFile], list[str]]:
    """Prefixes enough to keep a cluster busy, and the files above them."""
    files: list[StoredFile] = []
    prefixes = [""]
    for _ in range(_DEPTH):
        if len(prefixes) >= _PREFIXES or not prefixes:
            break
        deeper: list[str] = []
        for prefix in prefixes:
            here = join(work.root, prefix) if prefix else work.root
            found, folders = stores.of(here).level(here)
            files += [f for f in found if work.hidden(f"{prefix}/{f.path.rsplit('/', 1)[-1]}".lstrip("/"))]
            names = (f"{prefix}/{folder}".lstrip("/") for folder in folders)
            deeper += [name for name in names if work.hidden(name)]
        prefixes = deeper
    return files, prefixes


def _spread(spark: Any, rows: list[tuple[Any, ...]], schema: str) -> Any:
    frame = spark.createDataFrame(rows, schema)
    return frame.repartition(max(1, min(len(rows), 1000)))


def _lister(work: ClusterWork) -> Callable[[Batches], Batches]:
    def listing(batches: Batches) -> Batches:
        stores, names = work.stores(), work.names()
        for batch in batches:
            for prefix in batch.column(0).to_pylist():
                found = stores.walk(
                    join(work.root, prefix),
                    lambda relative, prefix=prefix: work.hidden(f"{prefix}/{relative}"),  # type: ignore[misc]
                )
                rows = ((f.path, f.size_bytes, f.modified_ms, *names.identity(f.path)) for f in found)
                yield from _in_batches(rows, _LISTED)

    return listing


def _reader(work: ClusterWork) -> Callable[[Batches], Batches]:
    def reading(batches: Batches) -> Batches:
        reader, names = Reachability(work.stores()), work.names()
        for batch in batches:
            manifests = [ManifestRef(*row.values()) for row in batch.to_pylist()]
            yield from _in_batches((names.identity(file.path) for file in reader.content_of(manifests)), _NAMED)

    return reading


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


def told_by_task(error: Exception) -> IcebergCompactError:
    """A failure on the cluster in our own words; nothing was deleted."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    telling = [line for line in lines if "cannot be read" in line] or [line for line in lines if "Error: " in line]
    return IcebergCompactError(
        f"listing on the cluster failed: {(telling or lines or [type(error).__name__])[0]}",
        hint="Nothing was deleted. Run it again, or clean one location at a time.",
    )
