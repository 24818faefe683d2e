"""Procedures and their parameters, declared once.

One declaration drives binding, `options => map(...)`, `CALL help`, the flags of the command line, the arguments of the
table function, the Python function with its type stub, and the tables in the documents.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from iceberg_compact_sql.version import VERSION

if TYPE_CHECKING:
    from iceberg_compact_sql.actions.context import Context

Row = tuple[Any, ...]
_DEPRECATED = re.compile(r"since (\d+)\.(\d+): (use \w.*)")
# A deprecated argument warns in the version that deprecates it and in the next minor version; then it is an error.
_MINOR_VERSIONS_OF_WARNING = 2


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
    (bytes for a size, milliseconds for a duration); `default_text` describes a default that is computed later.
    `deprecated` is text such as "since 0.3: use target". The argument then warns, and is an error from 0.5 on.
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
    deprecated: str | None = None

    def __post_init__(self) -> None:
        if self.deprecated is not None and _DEPRECATED.fullmatch(self.deprecated) is None:
            raise ValueError(f"deprecated={self.deprecated!r} is not of the form 'since 0.3: use target'")

    @property
    def deprecation(self) -> str | None:
        """What help and warnings say: "deprecated since 0.3: use target"; None for an argument that stays."""
        if self.deprecated is None:
            return None
        removed_in, advice = self._removal(self.deprecated)
        return f"removed in {removed_in}: {advice}" if self.removed else f"deprecated {self.deprecated}"

    @property
    def removed(self) -> bool:
        """Whether this version refuses the argument, which an earlier version deprecated."""
        if self.deprecated is None:
            return False
        return _minor_version(VERSION) >= _minor_version(self._removal(self.deprecated)[0])

    @staticmethod
    def _removal(deprecated: str) -> tuple[str, str]:
        """The version that refuses the argument, and what to use instead."""
        major, minor, advice = _DEPRECATED.findall(deprecated)[0]
        return f"{major}.{int(minor) + _MINOR_VERSIONS_OF_WARNING}", advice

    @property
    def shown_meaning(self) -> str:
        """The meaning as help, flags and documents show it."""
        return self.meaning if self.deprecation is None else f"{self.meaning} ({self.deprecation})"

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


def _minor_version(text: str) -> tuple[int, int]:
    """Return major and minor of "0.3.1" or "0.3"."""
    major, minor = text.split(".")[:2]
    return int(major), int(minor)


@dataclass(frozen=True)
class Column:
    """A result column; `type` is one of Spark's names: int, bigint, double, boolean, string, timestamp."""

    name: str
    type: str


def columns(text: str) -> tuple[Column, ...]:
    """Read columns from `name type` pairs, in the order of the result.

    >>> columns("path string, bytes bigint")
    (Column(name='path', type='string'), Column(name='bytes', type='bigint'))
    """
    return tuple(Column(*pair.split()) for pair in text.split(","))


class Arguments(Mapping[str, Any]):
    """Bound values by parameter name, with every parameter; `given` holds the names that the user gave.

    `iceberg_form` is true when the call had the form of Iceberg's own procedure.
    """

    def __init__(
        self, values: Mapping[str, Any], given: frozenset[str] = frozenset(), *, iceberg_form: bool = False
    ) -> None:
        self._values = dict(values)
        self.given = given
        self.iceberg_form = iceberg_form

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"Arguments({self._values!r})"

    def replace(self, **changes: Any) -> Arguments:
        """Return the same arguments with some values changed; the changed ones count as given."""
        given = self.given | frozenset(changes)
        return Arguments({**self._values, **changes}, given, iceberg_form=self.iceberg_form)


@dataclass(frozen=True)
class IcebergForm:
    """Iceberg's own procedure that does the same: its name, its positional order, and how many columns it returns.

    A call has this form when it is qualified (`system.name` or `catalog.system.name`) and uses this name. It then takes
    this positional order and returns Iceberg's columns, which are the first `column_count` of ours. An unqualified call
    returns all our columns; under a name that only Iceberg has it takes this positional order too.
    """

    name: str
    positions: tuple[str, ...]
    column_count: int


@dataclass(frozen=True)
class Procedure:
    """A procedure: its declaration, and the function that runs it.

    `run(context, arguments)` returns the rows of `columns`, or of `dry_run_columns` when `dry_run` is true.
    `check(context, arguments)` raises when values that are valid alone do not fit together; `run` raises the same.
    `option_prefixes` and `option_names` are keys of `options` that are passed on unchanged.
    """

    name: str
    summary: str
    parameters: tuple[Parameter, ...]
    columns: tuple[Column, ...]
    run: Callable[[Context, Arguments], list[Row]]
    example: str
    dry_run_columns: tuple[Column, ...] | None = None
    iceberg: IcebergForm | None = None
    table_function: bool = False
    option_prefixes: tuple[str, ...] = ()
    option_names: tuple[str, ...] = ()
    check: Callable[[Context, Arguments], object] | None = None
    # Whether a call may change a table or its files; a dry run never does.
    changes_tables: bool = False

    def parameter(self, name: str) -> Parameter | None:
        return next((p for p in self.parameters if p.name == name), None)

    def has_iceberg_form(self, called_as: str, *, qualified: bool) -> bool:
        """Whether a call under this name is a call of Iceberg's own procedure."""
        return qualified and self.iceberg is not None and self.iceberg.name == called_as

    def positions(self, called_as: str, *, qualified: bool = False) -> tuple[str, ...]:
        """Parameter names in positional order under the name that the user called."""
        if self.iceberg is not None and self.iceberg.name == called_as and (qualified or called_as != self.name):
            return self.iceberg.positions
        return tuple(p.name for p in self.parameters)

    def result_columns(self, arguments: Arguments) -> tuple[Column, ...]:
        """The columns of a call's result; a dry run that Iceberg does not have returns ours in every form."""
        dry_run = self.dry_run_columns is not None and arguments.get("dry_run")
        if self.iceberg is not None and arguments.iceberg_form and (not dry_run or "dry_run" in self.iceberg.positions):
            return self.columns[: self.iceberg.column_count]
        return self.dry_run_columns if self.dry_run_columns is not None and dry_run else self.columns


TABLE = Parameter(
    "table", Kind.STRING, "the table: 't', 'db.t' or 'catalog.db.t'", required=True, example="'db.events'"
)
DRY_RUN = Parameter("dry_run", Kind.BOOLEAN, "show what the call would do and change nothing", default=False)
BRANCH = Parameter("branch", Kind.STRING, "the branch that is read and changed", default="main")
MIN_FILE_SIZE = Parameter(
    "min_file_size",
    Kind.SIZE,
    "files below this size are rewritten",
    default_text="0.75 of target",
    option="min-file-size-bytes",
)
MAX_FILE_SIZE = Parameter(
    "max_file_size",
    Kind.SIZE,
    "files above this size are rewritten",
    default_text="1.8 of target",
    option="max-file-size-bytes",
)
MIN_INPUT_FILES = Parameter(
    "min_input_files",
    Kind.INT,
    "rewrite a group when it has at least this many files",
    default=5,
    minimum=1,
    option="min-input-files",
)
