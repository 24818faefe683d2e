"""Selects the catalog properties that a task needs for its storage; no others leave the driver."""

from __future__ import annotations

from collections.abc import Mapping

from iceberg_compact_sql.storage.request_timeouts import TIMEOUT_PREFIX

# Prefixes of properties that a FileIO reads; all others belong to the catalog and stay on the driver.
_IO_PREFIXES = ("s3.", "s3tables.", "gcs.", "adls.", "hdfs.", "hf.", "client.", "oss.", "file.", TIMEOUT_PREFIX)
_IO_NAMES = frozenset({"py-io-impl", "buffer-size", "DEFAULT_SCHEME", "DEFAULT_NETLOC"})
# A remote signer requests signatures from the catalog's server, with the catalog's token.
_SIGNER_NAMES = frozenset({"uri", "token"})


def io_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties of a catalog that its FileIO reads, so that other credentials stay on the driver."""
    names = _IO_NAMES | _SIGNER_NAMES if "s3.signer" in properties else _IO_NAMES
    return {name: value for name, value in properties.items() if name.startswith(_IO_PREFIXES) or name in names}
