"""The errors of Spark 4.1 and Iceberg 1.12 for wrong arguments of Iceberg's own procedures.

Notebooks and dbt tests match these conditions and messages. They are used when a call has Iceberg's form.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any

from iceberg_compact_sql.call.declaration import Kind, Parameter
from iceberg_compact_sql.errors import (
    IcebergCompactError,
    IcebergError,
    IcebergKind,
    InvalidArgumentError,
    NotFoundError,
)

_PARAMETER_SQL_STATE = "4274K"
_FUNCTIONS_PAGE = "https://spark.apache.org/docs/latest/sql-ref-functions.html"
_SPARK_TYPES = {
    Kind.STRING: "STRING",
    Kind.CHOICE: "STRING",
    Kind.BOOLEAN: "BOOLEAN",
    Kind.INT: "INT",
    Kind.LONG: "BIGINT",
    Kind.TIME: "TIMESTAMP",
    Kind.LONGS: "ARRAY<BIGINT>",
    Kind.STRINGS: "ARRAY<STRING>",
    Kind.MAP: "MAP<STRING, STRING>",
}
_ORDINALS = ("first", "second", "third")
_NUMBERS = (Kind.INT, Kind.LONG)
_COLLECTIONS = (Kind.LONGS, Kind.STRINGS, Kind.MAP)
# Options for which Iceberg has its own message.
_OPTION_MESSAGES = {
    "max-concurrent-file-group-rewrites": "Cannot set {key} to {value}, the value must be positive.",
    "partial-progress.max-commits": (
        "Cannot set {key} to {value}, the value must be positive when partial-progress.enabled is true"
    ),
    "max-files-to-rewrite": "Cannot set {key} to {value}, the value must be positive integer.",
    "rewrite-job-order": "Invalid rewrite job order name: {value}",
    "max-output-size": "Cannot have the interleaved ZOrder value use less than 1 byte, '{key}' was set to {value}",
    "var-length-contribution": (
        "Cannot use less than 1 byte for variable length types with ZOrder, '{key}' was set to {value}"
    ),
}
_ARGUMENT_MESSAGES = {
    "retain_last": "Number of snapshots to retain must be at least 1, cannot be: {value}",
    "max_concurrent_deletes": "max_concurrent_deletes should have value > 0, value: {value}",
    "strategy": "unsupported strategy: {value}. Only binpack or sort is supported",
    "sort_order": "Unable to parse sortOrder: {value}",
    "prefix_mismatch_mode": "Invalid mode: {value}",
    "where": "Cannot parse predicates in where option: {value}",
    "branch": "Cannot rewrite data files for branch {value}: branch does not exist",
    "output_spec_id": (
        "Cannot use output spec id {value} because the table does not contain a reference to this spec-id."
    ),
    "spec_id": "Invalid spec id {value}",
    "older_than": (
        "Cannot remove orphan files with an interval less than 24 hours. Executing this procedure with a short "
        "interval may corrupt the table if other operations are happening at the same time. If you are absolutely "
        "confident that no concurrent operations will be affected by removing orphan files with such a short interval, "
        "you can use the Action API to remove orphan files with an arbitrary interval."
    ),
}
_GC_DISABLED_MESSAGES = {
    "expire_snapshots": "Cannot expire snapshots: GC is disabled (deleting files may corrupt other tables)",
    "remove_orphan_files": "Cannot delete orphan files: GC is disabled (deleting files may corrupt other tables)",
}


def given_twice(procedure: str, name: str, *, by_position: bool) -> IcebergError:
    kind = "BOTH_POSITIONAL_AND_NAMED" if by_position else "DOUBLE_NAMED_ARGUMENT_REFERENCE"
    rule = (
        "A positional argument and named argument both referred to the same parameter. Please remove the named "
        "argument referring to this parameter."
        if by_position
        else "More than one named argument referred to the same parameter. Please assign a value only once."
    )
    return _condition(
        f"DUPLICATE_ROUTINE_PARAMETER_ASSIGNMENT.{kind}",
        f"Call to routine `{procedure}` is invalid because it includes multiple argument assignments to the same "
        f"parameter name `{name}`. {rule}",
    )


def missing(procedure: str, name: str, position: int) -> IcebergError:
    return _condition(
        "REQUIRED_PARAMETER_NOT_FOUND",
        f"Cannot invoke routine `{procedure}` because the parameter named `{name}` is required, but the routine call "
        f"did not supply a value. Please update the routine call to supply an argument value (either positionally at "
        f"index {position} or by name) and retry the query again.",
    )


def is_null(name: str) -> IcebergError:
    return IcebergError(f"Parameter '{name}' is not set")


def unknown(procedure: str, name: str, near: Sequence[str]) -> IcebergError:
    return _condition(
        "UNRECOGNIZED_PARAMETER_NAME",
        f"Cannot invoke routine `{procedure}` because the routine call included a named argument reference for the "
        f"argument named `{name}`, but this routine does not include any signature containing an argument with this "
        f"name. Did you mean one of the following? [{' '.join(f'`{candidate}`' for candidate in near)}].",
    )


def too_many(procedure: str, least: int, most: int, count: int) -> IcebergError:
    return _condition(
        "WRONG_NUM_ARGS.WITHOUT_SUGGESTION",
        f"The `{procedure}` requires {list(range(least, most + 1))} parameters but the actual number is {count}. "
        f"Please, refer to '{_FUNCTIONS_PAGE}' for a fix.",
        "42605",
    )


def positional_after_named(procedure: str, name: str) -> IcebergError:
    return _condition(
        "UNEXPECTED_POSITIONAL_ARGUMENT",
        f"Cannot invoke routine `{procedure}` because it contains positional argument(s) following the named argument "
        f"assigned to `{name}`; please rearrange them so the positional arguments come first and then retry the query "
        "again.",
    )


def strategy_of(strategy: str, sort_order: str | None) -> str:
    """Return the strategy that a sort_order makes of `binpack` and `sort`; what cannot be read is refused later.

    >>> strategy_of("binpack", "ZOrder(a, b)"), strategy_of("sort", "id"), strategy_of("hilbert", "id")
    ('zorder', 'sort', 'hilbert')
    """
    if sort_order is None or strategy not in ("binpack", "sort"):
        return strategy
    function = sort_order.strip(" \t\r\n(").partition("(")[0].strip().lower()
    return function if function in ("zorder", "hilbert") else "sort"


def unknown_options(keys: Collection[str], strategy: str) -> IcebergError:
    rewriter = {"sort": "SORT", "zorder": "Z-ORDER", "hilbert": "HILBERT"}.get(strategy, "BIN-PACK")
    shown = ", ".join(sorted(keys))
    return IcebergError(
        f"Cannot use options [{shown}], they are not supported by the action or the rewriter {rewriter}"
    )


def wrong_value(parameter: Parameter, value: Any, position: int | None) -> IcebergError | None:
    """Iceberg's error for a value that an argument or an option does not accept; None where Iceberg accepts it."""
    option = parameter.option if parameter.name.startswith("options[") else None
    if option is not None:
        return _wrong_option(parameter, option, value)
    if parameter.name == "table" and not isinstance(value, (list, tuple, Mapping)):
        return IcebergError(
            "Cannot handle an empty identifier for parameter 'table'"
            if isinstance(value, str)
            else f"Cannot parse identifier for parameter 'table': {_sql_text(value)}"
        )
    expected = _SPARK_TYPES.get(parameter.kind)
    readable = isinstance(value, str) and parameter.kind not in _COLLECTIONS
    if expected not in (None, "STRING") and readable and not _is_number(value):
        return _condition(
            "CAST_INVALID_INPUT",
            f'The value \'{value}\' of the type "STRING" cannot be cast to "{expected}" because it is malformed. '
            "Correct the value as per the syntax, or change its target type. Use `try_cast` to tolerate malformed "
            "input and return NULL instead.",
            "22018",
            # Spark's error for a malformed number is a NumberFormatException.
            IcebergKind.ILLEGAL_ARGUMENT if parameter.kind in _NUMBERS else IcebergKind.ANALYSIS,
        )
    mismatch = not _casts_implicitly(parameter.kind, value)
    if expected is not None and mismatch and position is not None:
        ordinal = _ORDINALS[position] if position < len(_ORDINALS) else f"{position + 1}th"
        return _condition(
            "DATATYPE_MISMATCH.UNEXPECTED_INPUT_TYPE",
            f'Cannot resolve CALL due to data type mismatch: The {ordinal} parameter requires the "{expected}" type, '
            f'however "{_sql_text(value)}" has the type "{_type_of(value)}".',
            "42K09",
        )
    return None


def prefix_conflicts(conflicts: Iterable[tuple[str, str]]) -> IcebergError:
    """The error for files that are listed under one prefix (`scheme://authority`) and named under another one.

    Iceberg shows pairs of schemes or authorities: the one in the metadata, then the listed one.
    """
    pairs: dict[str, None] = {}
    for listed, named in conflicts:
        for of_metadata, of_listing in zip(named.split("://", 1), listed.split("://", 1), strict=True):
            if of_metadata != of_listing:
                pairs[f"({of_metadata or 'null'}, {of_listing or 'null'})"] = None
    return IcebergError(
        "Unable to determine whether certain files are orphan. Metadata references files that match listed/provided "
        "files except for authority/scheme. Please, inspect the conflicting authorities/schemes and provide which of "
        "them are equal by further configuring the action via equalSchemes() and equalAuthorities() methods. Set the "
        "prefix mismatch mode to 'NONE' to ignore remaining locations with conflicting authorities/schemes or to "
        "'DELETE' iff you are ABSOLUTELY confident that remaining conflicting authorities/schemes are different. It "
        f"will be impossible to recover deleted files. Conflicting authorities/schemes: [{', '.join(pairs)}].",
        IcebergKind.VALIDATION,
    )


def as_iceberg_error(error: IcebergCompactError, procedure: str) -> IcebergError | None:
    """The error that Iceberg's own procedure raises for this failure; None where it has no such error.

    A wrong argument that Iceberg does not have is an IllegalArgumentException with our own message.
    """
    if error.iceberg is not None:
        return error.iceberg
    if error.argument == "gc.enabled" and procedure in _GC_DISABLED_MESSAGES:
        return IcebergError(_GC_DISABLED_MESSAGES[procedure], IcebergKind.VALIDATION)
    if isinstance(error, NotFoundError) and error.argument == "table":
        catalog = re.search(r"catalog '([^']*)'", error.detail)
        where = f" in catalog '{catalog[1]}'" if catalog else ""
        return IcebergError(f"Couldn't load table '{error.value}'{where}", IcebergKind.RUNTIME)
    if not isinstance(error, (InvalidArgumentError, NotFoundError)) or error.argument is None:
        return None
    message_format = _ARGUMENT_MESSAGES.get(error.argument)
    return IcebergError(str(error) if message_format is None else message_format.format(value=_text(error.value)))


def _wrong_option(parameter: Parameter, option: str, value: Any) -> IcebergError | None:
    message_format = _OPTION_MESSAGES.get(option)
    whole = parameter.kind in (*_NUMBERS, Kind.SIZE)
    if parameter.kind is not Kind.CHOICE and not (_is_whole_number(value) if whole else _is_number(value)):
        return IcebergError(f'For input string: "{value}"')
    if message_format is not None:
        return IcebergError(message_format.format(key=option, value=_text(value)))
    number = float(value)
    shown = number if parameter.kind is Kind.DOUBLE else _text(value)
    if parameter.maximum is not None and number > parameter.maximum:
        return IcebergError(f"'{option}' is set to {shown} but must be <= {parameter.maximum:g}")
    rule = ">= 0" if parameter.minimum == 0 or parameter.name.endswith("min-file-size-bytes']") else "> 0"
    return IcebergError(f"'{option}' is set to {shown} but must be {rule}")


def _condition(
    condition: str,
    message: str,
    sql_state: str = _PARAMETER_SQL_STATE,
    kind: IcebergKind = IcebergKind.ANALYSIS,
) -> IcebergError:
    return IcebergError(message, kind, condition, sql_state)


def _casts_implicitly(kind: Kind, value: Any) -> bool:
    """Whether Spark casts a value of this type to the type of the argument before it calls the procedure."""
    if kind in (Kind.LONGS, Kind.STRINGS):
        # Spark casts the items of an array between numbers, and to strings, but not from strings.
        return isinstance(value, (list, tuple)) and (kind is Kind.STRINGS or not any(isinstance(i, str) for i in value))
    if kind is Kind.MAP:
        return isinstance(value, Mapping)
    if isinstance(value, (list, tuple, Mapping)):
        return False
    if kind is Kind.TIME:
        return isinstance(value, dt.date)
    return kind is not Kind.BOOLEAN or isinstance(value, (bool, str))


def _text(value: Any) -> str:
    try:
        return str(value)
    except ValueError:
        # Python refuses to format integers of more than 4,300 digits.
        return "a value too long to show"


def _sql_text(value: Any) -> str:
    """A value as Spark's messages show it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple)):
        return f"array({', '.join(map(_sql_text, value))})"
    return _text(value)


def _is_whole_number(value: Any) -> bool:
    return re.fullmatch(r"[+-]?\d{1,19}", str(value)) is not None


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError, OverflowError):
        return False
    return True


def _type_of(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return f"ARRAY<{_type_of(value[0]) if value else 'VOID'}>"
    if isinstance(value, bool):
        return "BOOLEAN"
    if isinstance(value, int):
        return "INT" if abs(value) < 2**31 else "BIGINT"
    if isinstance(value, Decimal):
        _, digits, exponent = value.as_tuple()
        scale = max(0, -exponent) if isinstance(exponent, int) else 0
        return f"DECIMAL({max(len(digits), scale)},{scale})"
    return "DOUBLE" if isinstance(value, float) else "STRING"
