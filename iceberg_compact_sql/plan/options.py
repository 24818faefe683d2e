"""Makes planning options from typed arguments and table properties, and checks the rules between them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from iceberg_compact_sql.errors import IcebergError, InvalidArgumentError
from iceberg_compact_sql.plan.model import CompactionOptions
from iceberg_compact_sql.table.properties import TARGET_FILE_BYTES, Property
from iceberg_compact_sql.units import format_bytes

MIN_SIZE_RATIO = 0.75
MAX_SIZE_RATIO = 1.8


def resolve_options(
    *,
    properties: Mapping[str, str] | None = None,
    spec_ids: Collection[int] | None = None,
    target: int | None = None,
    min_file_size: int | None = None,
    max_file_size: int | None = None,
    output_spec_id: int | None = None,
    **others: Any,
) -> CompactionOptions:
    """Return planning options with every default filled in; None means the default.

    The declarations of the procedure have checked each value. This checks the rules between values and
    with the table. `others` are fields of `CompactionOptions` by their own names.
    """
    target_bytes = target_file_bytes(target, properties or {})
    min_file_bytes, max_file_bytes = size_limits(target_bytes, min_file_size, max_file_size)
    if output_spec_id is not None and spec_ids is not None and output_spec_id not in spec_ids:
        known = ", ".join(str(spec_id) for spec_id in sorted(spec_ids))
        raise InvalidArgumentError(
            f"output_spec_id {output_spec_id} is not a spec of the table, which has: {known}",
            argument="output_spec_id",
            value=output_spec_id,
        )
    given = {name: value for name, value in others.items() if value is not None}
    return CompactionOptions(
        target_bytes=target_bytes,
        min_file_bytes=min_file_bytes,
        max_file_bytes=max_file_bytes,
        output_spec_id=output_spec_id,
        **given,
    )


def size_limits(target_bytes: int, min_file_size: int | None, max_file_size: int | None) -> tuple[int, int]:
    """Return the smallest and the largest size of a healthy file; refuse limits on the wrong side of the target."""
    smallest = int(target_bytes * MIN_SIZE_RATIO) if min_file_size is None else min_file_size
    largest = int(target_bytes * MAX_SIZE_RATIO) if max_file_size is None else max_file_size
    for name, size, wrong, rule, sign, result in (
        ("min_file_size", smallest, smallest >= target_bytes, "below", ">", "smaller than the min"),
        ("max_file_size", largest, largest <= target_bytes, "above", "<", "larger than the max"),
    ):
        if wrong:
            raise InvalidArgumentError(
                f"{name} {format_bytes(size)} must be {rule} target {format_bytes(target_bytes)}",
                argument=name,
                value=size,
                iceberg=IcebergError(
                    f"'target-file-size-bytes' ({target_bytes}) must be {sign} '{name.replace('_', '-')}-bytes' "
                    f"({size}), all new files will be {result} threshold"
                ),
            )
    return smallest, largest


def target_file_bytes(
    target: int | None,
    properties: Mapping[str, str],
    target_property: Property[int] = TARGET_FILE_BYTES,
) -> int:
    """Return the argument, else the table's property, else its default."""
    return target_property.of(properties) if target is None else target
