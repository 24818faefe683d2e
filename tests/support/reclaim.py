"""Tables and oracles for the tests of reclaiming: real catalogs on SQLite, files on disk."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import ManifestEntryStatus
from pyiceberg.table import Table

from iceberg_compact_sql.storage.same_file import same_file_key

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])
FUTURE_MS = 4_102_444_800_000
DAY_MS = 86_400_000


def new_catalog(folder: Path, name: str = "lake") -> SqlCatalog:
    folder.mkdir(parents=True, exist_ok=True)
    catalog = SqlCatalog(name, uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/warehouse")
    catalog.create_namespace_if_not_exists("db")
    return catalog


def new_table(catalog: SqlCatalog, name: str = "db.t", **properties: str) -> Table:
    return catalog.create_table(name, SCHEMA, properties=properties)


def id_rows(*ids: int) -> pa.Table:
    return pa.table({"id": list(ids), "name": [f"row {i}" for i in ids]}, schema=SCHEMA)


def append_ids(table: Table, *ids: int, branch: str = "main") -> int:
    """Append rows and give the new snapshot's id."""
    table.append(id_rows(*ids), branch=branch)
    reference = table.metadata.refs[branch]
    return reference.snapshot_id


def ids_in(table: Table, snapshot_id: int | None = None) -> list[int]:
    return sorted(table.scan(snapshot_id=snapshot_id).to_arrow()["id"].to_pylist())


def on_disk(table: Table) -> set[str]:
    """Every file of the table's folder, metadata.json and quarantine left out."""
    root = Path(same_file_key(table.location()).removeprefix("file:"))
    return {
        f"file:{path}"
        for path in root.rglob("*")
        if path.is_file()
        and not path.name.endswith((".metadata.json", ".metadata.json.crc"))
        and "_quarantine" not in path.parts
    }


def needed(table: Table) -> set[str]:
    """Every file that any snapshot of the table needs, read with pyiceberg's own classes."""
    found = set()
    for snapshot in table.metadata.snapshots:
        found.add(snapshot.manifest_list)
        for manifest in snapshot.manifests(table.io):
            found.add(manifest.manifest_path)
            for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=False):
                if entry.status != ManifestEntryStatus.DELETED:
                    found.add(entry.data_file.file_path)
    found.update(s.statistics_path for s in (*table.metadata.statistics, *table.metadata.partition_statistics))
    return {same_file_key(path) for path in found}
