"""Names of the properties by which our snapshots are told from others'."""

from __future__ import annotations

RUN_ID = "iceberg-compact.run-id"
GROUPS = "iceberg-compact.groups"
SIZES = "iceberg-compact.sizes"
MANIFESTS = "iceberg-compact.manifests"
