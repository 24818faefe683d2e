"""Which properties of a catalog a task needs to reach the storage; no others leave the driver."""

from __future__ import annotations

from collections.abc import Mapping

# What a FileIO reads of its properties; everything else in there belongs to the catalog and stays at home.
_IO_PREFIXES = ("s3.", "s3tables.", "gcs.", "adls.", "hdfs.", "hf.", "client.", "oss.", "file.")
_IO_NAMES = frozenset({"py-io-impl", "buffer-size", "DEFAULT_SCHEME", "DEFAULT_NETLOC"})
# A remote signer asks the catalog's server for signatures, with the catalog's token.
_SIGNER_NAMES = frozenset({"uri", "token"})


def io_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Those properties of a catalog that its FileIO reads: no catalog credential leaves the driver without need."""
    names = _IO_NAMES | _SIGNER_NAMES if "s3.signer" in properties else _IO_NAMES
    return {name: value for name, value in properties.items() if name.startswith(_IO_PREFIXES) or name in names}
