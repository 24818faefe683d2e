"""Names of the summary properties that this package writes into its snapshots."""

from __future__ import annotations

RUN_ID = "iceberg-compact.run-id"
GROUPS = "iceberg-compact.groups"
SIZES = "iceberg-compact.sizes"
MANIFESTS = "iceberg-compact.manifests"
