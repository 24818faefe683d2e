"""A second reader, slow and plain: every row of a branch with all deletes applied, by the text of the spec.

It walks the manifests as raw Avro records and shares no code with the package under test.

    rows(table)                    # sorted list of dicts
    assert_readable(table)         # every file that a live entry names exists
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.avro.file import AvroFile
from pyiceberg.table import Table

PATH_ID, POS_ID = 2147483546, 2147483545


def plain(path: str) -> str:
    """A local path without its scheme."""
    return urlparse(path).path if path.startswith("file:") else path


def _records(path: str) -> list[dict[str, Any]]:
    """Avro records as nested dicts, exactly with the fields that the file declares."""
    file = Path(plain(path))
    return _parsed(file, file.stat().st_size)


@functools.lru_cache(maxsize=4096)
def _parsed(file: Path, size_bytes: int) -> list[dict[str, Any]]:
    # Metadata files never change, so that a file which is still there is parsed once.
    class Input:
        def open(self) -> Any:
            return file.open("rb")

    with AvroFile[Any](Input()) as reader:  # type: ignore[arg-type]
        struct = reader.schema.as_struct()
        return [_named(struct, record) for record in reader]


def _named(struct: Any, record: Any) -> dict[str, Any]:
    values = {}
    for position, field in enumerate(struct.fields):
        value = record[position]
        values[field.name] = _named(field.field_type, value) if hasattr(field.field_type, "fields") else value
    return values


def entries(table: Table, branch: str = "main", *, snapshot_id: int | None = None) -> list[dict[str, Any]]:
    """Live entries with sequence numbers inherited, each with `spec_id` and `manifest`."""
    metadata = table.catalog.load_table(table.name()).metadata
    head = metadata.snapshot_by_id(snapshot_id) if snapshot_id is not None else metadata.snapshot_by_name(branch)
    if head is None:
        return []
    found = []
    for manifest in _records(head.manifest_list):
        for entry in _records(manifest["manifest_path"]):
            if entry["status"] == 2:
                continue
            sequence = entry.get("sequence_number")
            if sequence is None:
                sequence = manifest.get("sequence_number", 0)
            found.append({**entry, "seq": sequence, "spec_id": manifest["partition_spec_id"], "manifest": manifest})
    return found


def _partition(entry: dict[str, Any]) -> tuple[Any, ...]:
    return (entry["spec_id"], *entry["data_file"]["partition"].values())


def _file_rows(path: str, ids: dict[int, str]) -> list[dict[str, Any]]:
    table = pq.ParquetFile(plain(path)).read()
    columns: dict[str, Any] = {}
    for field in table.schema:
        name = ids.get(int((field.metadata or {}).get(b"PARQUET:field_id", b"-1")))
        if name is not None:
            columns[name] = table.column(field.name).to_pylist()
    names = list(ids.values())
    return [{name: columns[name][i] if name in columns else None for name in names} for i in range(table.num_rows)]


def rows(
    table: Table, branch: str = "main", *, snapshot_id: int | None = None, only_files: set[str] | None = None
) -> list[dict[str, Any]]:
    """All live rows of a branch (or of some of its files) under the current schema, sorted."""
    schema = table.catalog.load_table(table.name()).schema()
    wanted = {field.field_id: field.name for field in schema.fields}
    specs = table.catalog.load_table(table.name()).specs()
    live = entries(table, branch, snapshot_id=snapshot_id)
    data = [e for e in live if e["data_file"].get("content", 0) == 0]
    positions = [e for e in live if e["data_file"].get("content", 0) == 1]
    equalities = [e for e in live if e["data_file"].get("content", 0) == 2]
    result = []
    for entry in data:
        if only_files is not None and entry["data_file"]["file_path"] not in only_files:
            continue
        path = plain(entry["data_file"]["file_path"])
        dead: set[int] = set()
        for delete in positions:
            about = delete["data_file"].get("referenced_data_file")
            if about not in (None, entry["data_file"]["file_path"]):
                continue
            if delete["seq"] >= entry["seq"] and _partition(delete) == _partition(entry):
                for row in _file_rows(delete["data_file"]["file_path"], {PATH_ID: "path", POS_ID: "pos"}):
                    if row["path"] == entry["data_file"]["file_path"]:
                        dead.add(row["pos"])
        killers = []
        for delete in equalities:
            everywhere = not specs[delete["spec_id"]].fields
            if delete["seq"] > entry["seq"] and (everywhere or _partition(delete) == _partition(entry)):
                ids = delete["data_file"]["equality_ids"]
                keys = _file_rows(delete["data_file"]["file_path"], {i: str(i) for i in ids})
                killers.append((ids, {tuple(key.values()) for key in keys}))
        by_id = {i: str(i) for i in {i for ids, _ in killers for i in ids}}
        keyed = _file_rows(path, by_id) if by_id else []
        for position, row in enumerate(_file_rows(path, wanted)):
            if position in dead:
                continue
            if any(tuple(keyed[position][str(i)] for i in ids) in keys for ids, keys in killers):
                continue
            result.append(row)
    return sorted(result, key=lambda row: [(row[k] is not None, str(type(row[k])), str(row[k])) for k in row])


def assert_readable(table: Table, branch: str = "main") -> None:
    """Every file of a live entry exists and has the size that its entry says."""
    for entry in entries(table, branch):
        file = Path(plain(entry["data_file"]["file_path"]))
        assert file.exists(), f"{file} is live but gone"
        assert file.stat().st_size == entry["data_file"]["file_size_in_bytes"], f"{file} has another size"


def as_arrow(table: Table, branch: str = "main") -> pa.Table:
    """The rows as an Arrow table."""
    return pa.Table.from_pylist(rows(table, branch))
