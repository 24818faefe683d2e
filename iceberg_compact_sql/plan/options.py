"""From typed arguments and table properties to planning options: defaults that hang together, and their rules."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from iceberg_compact_sql.errors import InvalidArgumentError
from iceberg_compact_sql.plan.model import CompactionOptions
from iceberg_compact_sql.units import format_bytes, parse_size

TARGET_PROPERTY = "write.target-file-size-bytes"
DEFAULT_TARGET_BYTES = 512 * 1024**2
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
    """Planning options with every default filled in; None means the default.

    Values are typed and bounded already, by the declarations of the procedure; here are the rules between them and
    with the table. `others` are fields of `CompactionOptions` by their own names.
    """
    target_bytes = target_file_bytes(target, properties or {})
    min_file_bytes, max_file_bytes = size_limits(target_bytes, min_file_size, max_file_size)
    if output_spec_id is not None and spec_ids is not None and output_spec_id not in spec_ids:
        known = ", ".join(str(known) for known in sorted(spec_ids))
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
    """The smallest and the largest size that a file may keep, on the right sides of the target."""
    smallest = int(target_bytes * MIN_SIZE_RATIO) if min_file_size is None else min_file_size
    largest = int(target_bytes * MAX_SIZE_RATIO) if max_file_size is None else max_file_size
    for name, size, wrong, rule in (
        ("min_file_size", smallest, smallest >= target_bytes, "below"),
        ("max_file_size", largest, largest <= target_bytes, "above"),
    ):
        if wrong:
            raise InvalidArgumentError(
                f"{name} {format_bytes(size)} must be {rule} target {format_bytes(target_bytes)}",
                argument=name,
                value=size,
            )
    return smallest, largest


def target_file_bytes(
    target: int | None,
    properties: Mapping[str, str],
    name: str = TARGET_PROPERTY,
    default_bytes: int = DEFAULT_TARGET_BYTES,
) -> int:
    """The argument, else the table's property, else the default."""
    if target is not None:
        return target
    text = properties.get(name)
    if text is None:
        return default_bytes
    try:
        target_bytes = parse_size(text)
    except ValueError as error:
        raise InvalidArgumentError(f"table property {name} {text!r} {error}", argument="target", value=text) from error
    if target_bytes < 1:
        raise InvalidArgumentError(f"table property {name} {text!r} must be above 0", argument="target", value=text)
    return target_bytes
