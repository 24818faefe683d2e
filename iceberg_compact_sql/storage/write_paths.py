"""The places beside its location where a table's properties send new files."""

from __future__ import annotations

import re
from collections.abc import Mapping

from iceberg_compact_sql.errors import UnsupportedError

WRITE_PATHS = ("write.data.path", "write.metadata.path", "write.object-storage.path", "write.folder-storage.path")
_FULL = re.compile(r"/|[A-Za-z][A-Za-z0-9+.\-]+:/")


def require_full_locations(properties: Mapping[str, str]) -> None:
    """Raise where one of them is another folder in every process: what is written there nobody else would find."""
    for name in WRITE_PATHS:
        place = properties.get(name)
        if place and _FULL.match(place) is None:
            raise UnsupportedError(
                f"the table's property '{name}' is {place!r}, which is no full location",
                argument="table",
                value=place,
                hint=f"Set it to one, or drop it: ALTER TABLE ... UNSET TBLPROPERTIES ('{name}').",
            )
