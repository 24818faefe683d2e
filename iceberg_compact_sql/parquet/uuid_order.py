"""Bounds of uuid columns, and the readers that compare them in another order."""

from __future__ import annotations

_LENGTH = 16


def uuid_orders_agree(least: bytes, greatest: bytes) -> bool:
    """Whether each uuid in [least, greatest] is also inside the range for readers that compare signed numbers.

    Parquet and Iceberg order uuids as unsigned bytes. Iceberg's Java readers (InclusiveMetricsEvaluator,
    ManifestEvaluator and ParquetMetricsRowGroupFilter, as of 1.12) compare with java.util.UUID.compareTo: the first
    and then the last 8 bytes as signed numbers. They skip files and row groups whose bounds span both signs, and find
    no row there. The last 8 bytes decide between values that share the first 8, so bounds with different first halves
    prove nothing about the values between them.

    >>> low, high = bytes(16), bytes(15) + bytes([1])
    >>> uuid_orders_agree(low, high), uuid_orders_agree(low, bytes([255]) * 16)
    (True, False)
    """
    if len(least) != _LENGTH or len(greatest) != _LENGTH:
        return False
    return least == greatest or (least[:8] == greatest[:8] and (least[8] < 0x80) == (greatest[8] < 0x80))
