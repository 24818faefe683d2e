"""Google Cloud Storage through pyarrow, with a limit for retries: pyarrow's own is 15 minutes."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import pyarrow.fs as pafs

from iceberg_compact_sql.storage.request_timeouts import timeouts_of

GCS_SCHEMES = frozenset({"gs", "gcs"})


def gcs_file_system(properties: Mapping[str, str]) -> pafs.FileSystem:
    """Return pyarrow's file system for the settings `gcs.*`, which are those of pyiceberg."""
    settings: dict[str, Any] = {"retry_time_limit": dt.timedelta(seconds=timeouts_of(properties).retry_seconds)}
    if token := properties.get("gcs.oauth2.token"):
        settings["access_token"] = token
        # pyarrow needs both. A token without a time is used until the server refuses it.
        expires_ms = int(properties.get("gcs.oauth2.token-expires-at") or 253_370_764_800_000)
        moment = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc) + dt.timedelta(milliseconds=expires_ms)
        settings["credential_token_expiration"] = moment
    if place := properties.get("gcs.default-bucket-location"):
        settings["default_bucket_location"] = place
    if host := properties.get("gcs.service.host"):
        parts = urlsplit(host)
        settings |= {"scheme": parts.scheme, "endpoint_override": parts.netloc}
    return pafs.GcsFileSystem(**settings)
