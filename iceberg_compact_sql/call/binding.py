"""Bind the arguments of a call: names and positions to parameters, values to types, bounds and options."""

from __future__ import annotations

import datetime as dt
import difflib
import math
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from iceberg_compact_sql.call import iceberg_errors
from iceberg_compact_sql.call.declaration import Arguments, Kind, Parameter, Procedure
from iceberg_compact_sql.errors import InvalidArgumentError, did_you_mean
from iceberg_compact_sql.units import (
    LONG_MAX,
    format_bytes,
    format_duration,
    parse_duration_ms,
    parse_size,
    parse_time_ms,
    plain_python,
    whole_number,
)

_INT_MAX = 2**31 - 1
# A function, called only when an argument needs the time zone: reading it may take a call to Spark.
TimeZone = Callable[[], str]
# A value that is known only when a table function runs: the argument's name is checked now, its type then.
LATER = object()


@dataclass(frozen=True)
class GivenArgument:
    """One argument as the user gave it: a Python value, and its position if it came from SQL text."""

    value: Any
    name: str | None = None
    line: int | None = None
    column: int | None = None


def given_arguments(*args: Any, **kwargs: Any) -> list[GivenArgument]:
    """Return Python values as the arguments of a call."""
    given = [GivenArgument(plain_python(value)) for value in args]
    return given + [GivenArgument(plain_python(value), key) for key, value in kwargs.items()]


def bind(
    procedure: Procedure,
    given: Sequence[GivenArgument],
    *,
    now_ms: int,
    time_zone: TimeZone,
    called_as: str | None = None,
    qualified: bool = False,
) -> Arguments:
    """Return typed values for every parameter; NULL means the default. Raises for the first wrong argument.

    `qualified` is true for a call of `system.name` and false for `name`. Guarantee: no table has been read or changed
    when it raises.
    """
    name = called_as or procedure.name
    written = _by_name(procedure, name, given, qualified)
    positions = procedure.positions(name, qualified=qualified)
    values: dict[str, Any] = {p.name: p.default for p in procedure.parameters}
    for parameter in procedure.parameters:
        entry = written.get(parameter.name)
        if entry is not None and entry.value is LATER:
            continue
        if entry is None or entry.value is None:
            if parameter.required:
                raise InvalidArgumentError(
                    f"argument '{parameter.name}' is missing",
                    procedure=name,
                    argument=parameter.name,
                    hint=f"Give it first: CALL {name}({parameter.example or '...'}).",
                    iceberg=iceberg_errors.missing(name, parameter.name, positions.index(parameter.name))
                    if entry is None
                    else iceberg_errors.is_null(parameter.name),
                )
            continue
        _check_deprecation(parameter, f"argument '{parameter.name}'", name, entry)
        position = positions.index(parameter.name) if parameter.name in positions else None
        values[parameter.name] = _typed(parameter, entry, name, now_ms, time_zone, position)
    chosen = {n for n, entry in written.items() if entry.value is not None}
    if "options" in values:
        values["options"] = _bind_options(procedure, name, values, chosen, now_ms, time_zone)
    iceberg_form = procedure.has_iceberg_form(name, qualified=qualified)
    return Arguments(values, frozenset(chosen), iceberg_form=iceberg_form)


def _by_name(
    procedure: Procedure, called_as: str, given: Sequence[GivenArgument], qualified: bool
) -> dict[str, GivenArgument]:
    positions = procedure.positions(called_as, qualified=qualified)
    known = {p.name for p in procedure.parameters}
    required_count = sum(p.required for p in procedure.parameters)
    written: dict[str, GivenArgument] = {}
    for index, entry in enumerate(given):
        where: dict[str, Any] = {"procedure": called_as, "line": entry.line, "column": entry.column}
        if entry.name is None:
            if index >= len(positions):
                raise InvalidArgumentError(
                    f"{len(given)} arguments given, but it takes at most {len(positions)}",
                    hint=f"See CALL help('{procedure.name}').",
                    iceberg=iceberg_errors.too_many(called_as, required_count, len(positions), len(given)),
                    **where,
                )
            name = positions[index]
        else:
            name = entry.name.lower()
            if name not in known:
                raise InvalidArgumentError(
                    f"unknown argument '{entry.name}'",
                    argument=entry.name,
                    hint=did_you_mean(name, sorted(known)) or f"See CALL help('{procedure.name}').",
                    iceberg=iceberg_errors.unknown(
                        called_as,
                        entry.name,
                        difflib.get_close_matches(name, positions, n=3) or positions[:3],
                    ),
                    **where,
                )
        if name in written:
            raise InvalidArgumentError(
                f"argument '{name}' is given twice",
                argument=name,
                hint="Give it once.",
                iceberg=iceberg_errors.given_twice(
                    called_as, entry.name or name, by_position=written[name].name is None
                ),
                **where,
            )
        written[name] = entry
    return written


def _check_deprecation(parameter: Parameter, shown: str, called_as: str, entry: GivenArgument) -> None:
    """Warn about a deprecated argument; refuse one that this version no longer has."""
    if parameter.removed:
        raise InvalidArgumentError(
            f"{shown} was {parameter.deprecation}",
            procedure=called_as,
            argument=parameter.name,
            line=entry.line,
            column=entry.column,
            hint=f"See CALL help('{called_as}').",
        )
    if parameter.deprecation is not None:
        # FutureWarning: Python shows it to the users of a program, and DeprecationWarning only to its developers.
        warnings.warn(f"{called_as}: {shown} is {parameter.deprecation}", FutureWarning, stacklevel=2)


def _typed(
    parameter: Parameter,
    entry: GivenArgument,
    called_as: str,
    now_ms: int,
    time_zone: TimeZone,
    position: int | None = None,
) -> Any:
    try:
        value = _convert(parameter, entry.value, now_ms, time_zone)
        _check_bounds(parameter, value)
    except ValueError as error:
        raise InvalidArgumentError(
            f"argument '{parameter.name}': {_shown(entry.value)} {error}",
            procedure=called_as,
            argument=parameter.name,
            value=entry.value,
            line=entry.line,
            column=entry.column,
            iceberg=iceberg_errors.wrong_value(parameter, entry.value, position),
        ) from None
    return value


def _convert(parameter: Parameter, value: Any, now_ms: int, time_zone: TimeZone) -> Any:
    kind = parameter.kind
    if kind is Kind.SIZE:
        return parse_size(value)
    if kind is Kind.AGE:
        return parse_duration_ms(value)
    if kind is Kind.TIME:
        return parse_time_ms(value, now_ms=now_ms, time_zone=time_zone())
    if kind is Kind.BOOLEAN:
        return _boolean(value)
    if kind in (Kind.INT, Kind.LONG):
        return _integer(value, _INT_MAX if kind is Kind.INT else LONG_MAX)
    if kind is Kind.DOUBLE:
        return _double(value)
    if kind is Kind.CHOICE:
        return _choice(parameter, value)
    if kind is Kind.LONGS:
        return tuple(_integer(item, LONG_MAX) for item in _items(value, "1, 2"))
    if kind is Kind.STRINGS:
        return tuple(_text(item, "; leave it out of the array") for item in _items(value, "'a', 'b'"))
    if kind is Kind.MAP:
        return _map(value)
    return _text(value, "; give a value" if parameter.required else "; give a value, or NULL for the default")


def _boolean(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().lower() in ("true", "false"):
        return value.strip().lower() == "true"
    raise ValueError("is not true or false")


def _integer(value: Any, largest: int) -> int:
    if isinstance(value, str):
        try:
            value = int(value.strip())
        except ValueError:
            raise ValueError("is not a whole number") from None
    number = whole_number(value)
    if number is None:
        raise ValueError("is not a whole number")
    if abs(number) > largest:
        raise ValueError(f"is beyond {largest}")
    return number


def _double(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal, str)):
        raise ValueError("is not a number")
    try:
        number = float(value)
    except ValueError:
        raise ValueError("is not a number") from None
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise ValueError("is not a finite number")
    return number


def _choice(parameter: Parameter, value: Any) -> str:
    text = _string(value).strip().lower()
    for choice in parameter.choices:
        if text == choice.lower():
            return choice
    raise ValueError(f"is not one of {', '.join(parameter.choices)}")


def _string(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("is not a string")
    return value


def _text(value: Any, next_step: str) -> str:
    """Refuse an empty string: an empty name, path or filter is a mistake and never means the default."""
    text = _string(value)
    if not text.strip():
        raise ValueError(f"is empty{next_step}")
    return text


def _items(value: Any, example: str) -> Sequence[Any]:
    if isinstance(value, (list, tuple, set, frozenset)):
        return tuple(value)
    raise ValueError(f"is not an array: write array({example})")


def _map(value: Any) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise ValueError("is not a map: write map('key', 'value')")
    result = {}
    for key, item in value.items():
        if not isinstance(key, str) or isinstance(item, (Mapping, list, tuple)) or item is None:
            raise ValueError(f"has the entry {key!r}: {item!r}; keys are strings, values are simple")
        result[key] = str(item).lower() if isinstance(item, bool) else str(item)
    return result


def _check_bounds(parameter: Parameter, value: Any) -> None:
    numbers = value if isinstance(value, tuple) else (value,)
    for number in numbers:
        if isinstance(number, bool) or not isinstance(number, (int, float)):
            continue
        if parameter.minimum is not None and number < parameter.minimum:
            raise ValueError(f"must be at least {_bound(parameter, parameter.minimum)}")
        if parameter.above is not None and number <= parameter.above:
            raise ValueError(f"must be above {_bound(parameter, parameter.above)}")
        if parameter.maximum is not None and number > parameter.maximum:
            raise ValueError(f"must be at most {_bound(parameter, parameter.maximum)}")


def _bound(parameter: Parameter, bound: float) -> str:
    if parameter.kind is Kind.SIZE:
        return format_bytes(bound)
    return format_duration(bound) if parameter.kind is Kind.AGE else f"{bound:g}"


def _bind_options(
    procedure: Procedure, called_as: str, values: dict[str, Any], chosen: set[str], now_ms: int, time_zone: TimeZone
) -> dict[str, str]:
    """Bind options to the arguments of the same meaning; return the writer's options, and refuse unknown ones."""
    by_option = {p.option: p for p in procedure.parameters if p.option}
    remaining: dict[str, str] = {}
    for key, text in (values["options"] or {}).items():
        parameter = by_option.get(key)
        if parameter is not None:
            if parameter.name in chosen:
                raise InvalidArgumentError(
                    f"option '{key}' and argument '{parameter.name}' are both given",
                    procedure=called_as,
                    argument="options",
                    value=key,
                    hint="Give one of them.",
                )
            _check_deprecation(parameter, f"option '{key}'", called_as, GivenArgument(text))
            option = Parameter(**{**parameter.__dict__, "name": f"options['{key}']"})
            values[parameter.name] = _typed(option, GivenArgument(text), called_as, now_ms, time_zone)
            chosen.add(parameter.name)
        elif _is_option(procedure, by_option, key):
            remaining[key] = text
        else:
            known = [*by_option, *procedure.option_names]
            raise InvalidArgumentError(
                f"unknown option '{key}'",
                procedure=called_as,
                argument="options",
                value=key,
                hint=did_you_mean(key, known) or f"Known options: {', '.join(sorted(known))}.",
                iceberg=iceberg_errors.unknown_options(
                    [key for key in values["options"] if not _is_option(procedure, by_option, key)],
                    iceberg_errors.strategy_of(str(values.get("strategy")), values.get("sort_order")),
                ),
            )
    return remaining


def _is_option(procedure: Procedure, by_option: Collection[str], key: str) -> bool:
    return key in by_option or key in procedure.option_names or key.startswith(procedure.option_prefixes or ("\0",))


def _shown(value: Any) -> str:
    if isinstance(value, (dt.datetime, dt.date)):
        return f"'{value}'"
    try:
        text = repr(value) if isinstance(value, str) else str(value)
    except ValueError:
        # Python refuses to format integers of more than 4,300 digits.
        return "a value too long to show"
    return text if len(text) <= 80 else f"{text[:77]}..."
