"""From arguments, Iceberg's option names and table properties to checked planning options."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TypeVar

from iceberg_compact_sql.errors import InvalidArgumentError, did_you_mean
from iceberg_compact_sql.plan.model import CompactionOptions
from iceberg_compact_sql.sql.units import format_bytes, parse_size

TARGET_PROPERTY = "write.target-file-size-bytes"
DEFAULT_TARGET_BYTES = 512 * 1024**2
MIN_SIZE_RATIO = 0.75
MAX_SIZE_RATIO = 1.8
_T = TypeVar("_T")

JOB_ORDERS = ("none", "bytes-asc", "bytes-desc", "files-asc", "files-desc", "score-desc")

# Iceberg's options that planning knows, and the argument that each one is.
PLANNING_OPTIONS: Mapping[str, str] = {
    "target-file-size-bytes": "target",
    "min-file-size-bytes": "min_file_size",
    "max-file-size-bytes": "max_file_size",
    "min-input-files": "min_input_files",
    "delete-file-threshold": "delete_file_threshold",
    "delete-ratio-threshold": "delete_ratio_threshold",
    "max-file-group-size-bytes": "max_group_size",
    "max-file-group-input-files": "max_group_files",
    "max-files-to-rewrite": "max_files",
    "rewrite-all": "rewrite_all",
    "rewrite-job-order": "job_order",
    "output-spec-id": "output_spec_id",
}


def resolve_options(
    *,
    properties: Mapping[str, str] | None = None,
    options: Mapping[str, str] | None = None,
    spec_ids: Collection[int] | None = None,
    target: object = None,
    min_file_size: object = None,
    max_file_size: object = None,
    min_input_files: object = None,
    delete_file_threshold: object = None,
    delete_ratio_threshold: object = None,
    max_group_size: object = None,
    max_group_files: object = None,
    max_files: object = None,
    rewrite_all: object = None,
    job_order: object = None,
    output_spec_id: object = None,
    idle_ms: int | None = None,
    min_score: object = None,
    max_bytes: object = None,
    max_cost: object = None,
    time_budget_ms: int | None = None,
    copy: object = None,
    copy_min_row_group_bytes: object = None,
) -> CompactionOptions:
    """Planning options with every default filled in and every bound checked; None means the default.

    `options` are Iceberg's option names with text values; names that planning does not know are not looked at. An
    error names the argument, its value and the rule. Sizes are bytes or text such as `512MB`.
    """
    given = _Given(
        {
            "target": target,
            "min_file_size": min_file_size,
            "max_file_size": max_file_size,
            "min_input_files": min_input_files,
            "delete_file_threshold": delete_file_threshold,
            "delete_ratio_threshold": delete_ratio_threshold,
            "max_group_size": max_group_size,
            "max_group_files": max_group_files,
            "max_files": max_files,
            "rewrite_all": rewrite_all,
            "job_order": job_order,
            "output_spec_id": output_spec_id,
            "min_score": min_score,
            "max_bytes": max_bytes,
            "max_cost": max_cost,
            "copy": copy,
            "copy_min_row_group_size": copy_min_row_group_bytes,
        },
        options or {},
    )
    target_bytes = given.size("target", minimum=1)
    if target_bytes is None:
        target_bytes = _target_of_table(properties or {})
    smallest = given.size("min_file_size", minimum=0)
    min_file_bytes = int(target_bytes * MIN_SIZE_RATIO) if smallest is None else smallest
    largest = given.size("max_file_size", minimum=1)
    max_file_bytes = int(target_bytes * MAX_SIZE_RATIO) if largest is None else largest
    if min_file_bytes >= target_bytes:
        raise given.error("min_file_size", f"must be below target {format_bytes(target_bytes)}", min_file_bytes)
    if max_file_bytes <= target_bytes:
        raise given.error("max_file_size", f"must be above target {format_bytes(target_bytes)}", max_file_bytes)
    order = given.choice("job_order", JOB_ORDERS) or "none"
    spec_id = given.whole("output_spec_id", minimum=0)
    if spec_id is not None and spec_ids is not None and spec_id not in spec_ids:
        known = ", ".join(str(known) for known in sorted(spec_ids))
        raise given.error("output_spec_id", f"is not a spec of the table, which has: {known}")
    copied = given.size("copy_min_row_group_size", minimum=0)
    default = CompactionOptions(target_bytes, min_file_bytes, max_file_bytes)
    return CompactionOptions(
        target_bytes=target_bytes,
        min_file_bytes=min_file_bytes,
        max_file_bytes=max_file_bytes,
        min_input_files=given.whole("min_input_files", minimum=1) or default.min_input_files,
        delete_file_threshold=given.whole("delete_file_threshold", minimum=0),
        delete_ratio_threshold=given.ratio("delete_ratio_threshold") or default.delete_ratio_threshold,
        max_group_bytes=given.size("max_group_size", minimum=1) or default.max_group_bytes,
        max_group_files=given.whole("max_group_files", minimum=1),
        max_files=given.whole("max_files", minimum=1),
        rewrite_all=given.flag("rewrite_all") or False,
        job_order=order,
        output_spec_id=spec_id,
        idle_ms=_duration("idle", idle_ms),
        min_score=given.number("min_score", maximum=1.0),
        max_bytes=given.size("max_bytes", minimum=1),
        max_cost=given.number("max_cost"),
        time_budget_ms=_duration("time_budget", time_budget_ms),
        copy=given.choice("copy", ("auto", "never")) or default.copy,
        copy_min_row_group_bytes=default.copy_min_row_group_bytes if copied is None else copied,
    )


class _Given:
    """What the user gave under each argument's name, read by type; an error names what the user wrote."""

    def __init__(self, arguments: Mapping[str, object], options: Mapping[str, str]) -> None:
        self._values = {name: value for name, value in arguments.items() if value is not None}
        self._said = {name: name for name in self._values}
        for option, argument in PLANNING_OPTIONS.items():
            if option not in options:
                continue
            if argument in self._values:
                raise InvalidArgumentError(
                    f"{argument} is given twice, as an argument and as the option '{option}'",
                    argument=argument,
                    value=self._values[argument],
                    hint="Give one of them.",
                )
            self._values[argument] = options[option]
            self._said[argument] = f"option '{option}'"

    def error(self, name: str, rule: str, size_bytes: int | None = None) -> InvalidArgumentError:
        value = self._values.get(name)
        shown = value if size_bytes is None else format_bytes(size_bytes)
        return InvalidArgumentError(f"{self._said.get(name, name)} {shown} {rule}", argument=name, value=value)

    def size(self, name: str, *, minimum: int) -> int | None:
        count = self._read(name, parse_size)
        if count is not None and count < minimum:
            raise self.error(name, "must be above 0" if minimum == 1 else f"must be at least {minimum}")
        return count

    def whole(self, name: str, *, minimum: int) -> int | None:
        count = self._read(name, _whole_number)
        if count is not None and count < minimum:
            raise self.error(name, f"must be at least {minimum}")
        return count

    def number(self, name: str, *, maximum: float = float("inf")) -> float | None:
        number = self._read(name, _any_number)
        if number is not None and not (0 <= number <= maximum and number < float("inf")):
            limit = f"between 0 and {maximum:g}" if maximum < float("inf") else "0 or more"
            raise self.error(name, f"must be {limit}")
        return number

    def ratio(self, name: str) -> float | None:
        number = self._read(name, _any_number)
        if number is not None and not 0 < number <= 1:
            raise self.error(name, "must be above 0 and at most 1")
        return number

    def flag(self, name: str) -> bool | None:
        return self._read(name, _boolean)

    def choice(self, name: str, choices: tuple[str, ...]) -> str | None:
        value = self._values.get(name)
        if value is None:
            return None
        chosen = str(value).lower().replace("_", "-")
        if chosen not in choices:
            error = self.error(name, f"is not one of {', '.join(choices)}")
            raise InvalidArgumentError(error.detail, argument=name, value=value, hint=did_you_mean(str(value), choices))
        return chosen

    def _read(self, name: str, convert: Callable[[object], _T]) -> _T | None:
        value = self._values.get(name)
        if value is None:
            return None
        try:
            return convert(value)
        except ValueError as error:
            raise self.error(name, str(error)) from error


def _target_of_table(properties: Mapping[str, str]) -> int:
    text = properties.get(TARGET_PROPERTY)
    if text is None:
        return DEFAULT_TARGET_BYTES
    try:
        target_bytes = parse_size(text)
    except ValueError as error:
        raise InvalidArgumentError(
            f"table property {TARGET_PROPERTY} {text!r} {error}", argument="target", value=text
        ) from error
    if target_bytes < 1:
        raise InvalidArgumentError(
            f"table property {TARGET_PROPERTY} {text!r} must be above 0", argument="target", value=text
        )
    return target_bytes


def _duration(name: str, milliseconds: int | None) -> int | None:
    if milliseconds is not None and milliseconds < 0:
        raise InvalidArgumentError(f"{name} {milliseconds} ms must be 0 or more", argument=name, value=milliseconds)
    return milliseconds


def _whole_number(value: object) -> int:
    if isinstance(value, bool):
        raise ValueError("is not a whole number")
    try:
        number = int(str(value))
    except ValueError:
        raise ValueError("is not a whole number") from None
    return number


def _any_number(value: object) -> float:
    if isinstance(value, bool):
        raise ValueError("is not a number")
    try:
        return float(str(value))
    except ValueError:
        raise ValueError("is not a number") from None


def _boolean(value: object) -> bool:
    if isinstance(value, bool):
        return value
    text = str(value).lower()
    if text not in ("true", "false"):
        raise ValueError("is not true or false")
    return text == "true"
