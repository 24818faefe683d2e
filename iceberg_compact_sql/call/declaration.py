"""Procedures and their parameters, declared once.

From one declaration come binding, `options => map(...)`, `CALL help`, the command line's flags, the table
function's arguments, the Python twin's signature and the tables of the README.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from iceberg_compact_sql.actions.context import Context

Row = tuple[Any, ...]


class Kind(str, Enum):
    """What a parameter takes, as `CALL help` names it."""

    STRING = "string"
    CHOICE = "choice"
    BOOLEAN = "boolean"
    INT = "int"
    LONG = "long"
    DOUBLE = "double"
    SIZE = "size"
    AGE = "duration"
    TIME = "time"
    LONGS = "array of long"
    STRINGS = "array of string"
    MAP = "map"


@dataclass(frozen=True)
class Parameter:
    """One argument of a procedure.

    `option` is the name that Iceberg gives it inside `options => map(...)`. `default` is a value of the bound type
    (bytes for a size, milliseconds for a duration); `default_text` describes a default that is worked out later.
    """

    name: str
    kind: Kind
    meaning: str
    default: Any = None
    default_text: str | None = None
    required: bool = False
    choices: tuple[str, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    above: float | None = None
    option: str | None = None
    example: str | None = None

    @property
    def shown_default(self) -> str:
        if self.required:
            return "required"
        if self.default_text is not None:
            return self.default_text
        if self.default is None:
            return "none"
        if isinstance(self.default, bool):
            return str(self.default).lower()
        if self.default in ((), {}):
            return "map()" if self.kind is Kind.MAP else "array()"
        return str(self.default)

    @property
    def shown_kind(self) -> str:
        return " | ".join(self.choices) if self.kind is Kind.CHOICE else self.kind.value


@dataclass(frozen=True)
class Column:
    """A result column; `type` is one of Spark's names: int, bigint, double, boolean, string, timestamp."""

    name: str
    type: str


def columns(text: str) -> tuple[Column, ...]:
    """Columns from `name type` pairs, in the order in which users get them.

    >>> columns("path string, bytes bigint")
    (Column(name='path', type='string'), Column(name='bytes', type='bigint'))
    """
    return tuple(Column(*pair.split()) for pair in text.split(","))


class Arguments(Mapping[str, Any]):
    """Bound values by parameter name, every parameter present; `given` tells which ones the user wrote."""

    def __init__(self, values: Mapping[str, Any], given: frozenset[str] = frozenset()) -> None:
        self._values = dict(values)
        self.given = given

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"Arguments({self._values!r})"

    def replace(self, **changes: Any) -> Arguments:
        """The same arguments with some values changed; the changed ones count as given."""
        return Arguments({**self._values, **changes}, self.given | frozenset(changes))


@dataclass(frozen=True)
class Alias:
    """Another name of a procedure, with the positional order that its users know."""

    name: str
    positions: tuple[str, ...]


@dataclass(frozen=True)
class Procedure:
    """A procedure: its declaration, and the function that does it.

    `run(context, arguments)` returns the rows of `columns`, or of `dry_run_columns` when `dry_run` is true.
    `check(context, arguments)` raises where values that are right one by one cannot be meant; `run` does so too.
    `option_prefixes` and `option_names` are keys of `options` that are handed on as they are.
    """

    name: str
    summary: str
    parameters: tuple[Parameter, ...]
    columns: tuple[Column, ...]
    run: Callable[[Context, Arguments], list[Row]]
    example: str
    dry_run_columns: tuple[Column, ...] | None = None
    aliases: tuple[Alias, ...] = ()
    table_function: bool = False
    option_prefixes: tuple[str, ...] = ()
    option_names: tuple[str, ...] = ()
    check: Callable[[Context, Arguments], object] | None = None

    def parameter(self, name: str) -> Parameter | None:
        return next((p for p in self.parameters if p.name == name), None)

    def positions(self, called_as: str) -> tuple[str, ...]:
        """Parameter names in positional order under the name that the user called."""
        for alias in self.aliases:
            if alias.name == called_as:
                return alias.positions
        return tuple(p.name for p in self.parameters)

    def result_columns(self, arguments: Mapping[str, Any]) -> tuple[Column, ...]:
        if self.dry_run_columns is not None and arguments.get("dry_run"):
            return self.dry_run_columns
        return self.columns


TABLE = Parameter(
    "table", Kind.STRING, "the table: 't', 'db.t' or 'catalog.db.t'", required=True, example="'db.events'"
)
DRY_RUN = Parameter("dry_run", Kind.BOOLEAN, "show what would be done, change nothing", default=False)
BRANCH = Parameter("branch", Kind.STRING, "the branch to work on", default="main")
MIN_FILE_SIZE = Parameter(
    "min_file_size",
    Kind.SIZE,
    "smaller files are rewritten",
    default_text="0.75 of target",
    option="min-file-size-bytes",
)
MAX_FILE_SIZE = Parameter(
    "max_file_size",
    Kind.SIZE,
    "larger files are rewritten",
    default_text="1.8 of target",
    option="max-file-size-bytes",
)
MIN_INPUT_FILES = Parameter(
    "min_input_files",
    Kind.INT,
    "a group of at least so many files is rewritten",
    default=5,
    minimum=1,
    option="min-input-files",
)
