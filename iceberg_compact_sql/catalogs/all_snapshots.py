"""Whether a loaded table has its complete list of snapshots."""

from __future__ import annotations

import json

from pyiceberg.catalog import MetastoreCatalog
from pyiceberg.table import Table

from iceberg_compact_sql.catalogs.hadoop import HadoopCatalog
from iceberg_compact_sql.errors import UnsupportedError
from iceberg_compact_sql.storage.metadata_json import unzipped
from iceberg_compact_sql.storage.stores import Stores

_SHOWN = 3


def require_all_snapshots(table: Table) -> None:
    """Raise unless the table has every snapshot that its metadata file names.

    A REST server may answer with the snapshots of branches and tags only, whatever the request asks for. The files of
    other snapshots would then look unreferenced. Other catalogs read the metadata file themselves.
    """
    if isinstance(table.catalog, (MetastoreCatalog, HadoopCatalog)):
        return
    name = ".".join(table.name())
    try:
        written = json.loads(unzipped(Stores(table.io).read(table.metadata_location)))
        named = {int(snapshot["snapshot-id"]) for snapshot in written.get("snapshots") or ()}
    except Exception as error:
        raise UnsupportedError(
            f"the metadata file {table.metadata_location} of table {name} cannot be read ({type(error).__name__}), so "
            "it is unknown whether the catalog gave all snapshots; nothing was deleted",
            argument="table",
            value=name,
            hint="Give this session the right to read the table's metadata files.",
        ) from error
    missing = sorted(named - {snapshot.snapshot_id for snapshot in table.metadata.snapshots})
    if missing:
        shown = ", ".join(map(str, missing[:_SHOWN])) + (", ..." if len(missing) > _SHOWN else "")
        raise UnsupportedError(
            f"the catalog gives {len(named) - len(missing)} of the {len(named)} snapshots of table {name}: {shown} are "
            "missing; nothing was expired or deleted",
            argument="table",
            value=name,
            hint="Set up the server to return all snapshots for snapshots=all (snapshot-loading-mode).",
        )
