"""The steps of maintain_table: which ones run, and the request of each from arguments and table properties."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any

from iceberg_compact_sql.actions.context import Context
from iceberg_compact_sql.call.binding import GivenArgument, bind
from iceberg_compact_sql.call.declaration import Arguments, Kind, Procedure
from iceberg_compact_sql.errors import IcebergCompactError, InvalidArgumentError, did_you_mean
from iceberg_compact_sql.procedures.maintenance.inherited_parameters import inherited_names

if TYPE_CHECKING:
    from iceberg_compact_sql.actions.maintain import Step, StepRequest

PROPERTY_PREFIX = "iceberg-compact."


@dataclass(frozen=True)
class DeclaredStep:
    """A step: the procedure that it runs, and the sources of its arguments.

    `arguments` maps a parameter of maintain_table to one of the procedure. `properties` maps a table property below
    `iceberg-compact.` to one of the procedure. An argument of the call overrides a property.
    """

    name: str
    procedure: str
    arguments: Mapping[str, str] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict)
    # If the call gives one of these, properties give none of them: they mean something together.
    together: frozenset[str] = frozenset()
    # Parameters of the procedure that maintain_table takes under the same name; `inherited_parameters` declares them.
    inherited: frozenset[str] = frozenset()

    @property
    def declaration(self) -> Procedure:
        declared: Procedure = self._module.PROCEDURE
        return declared

    def request_of(self, arguments: Arguments) -> StepRequest:
        """Return the request of the step's action from the bound arguments of its procedure."""
        request: StepRequest = self._module.request_of(arguments)
        return request

    @property
    def _module(self) -> Any:
        return import_module(f"iceberg_compact_sql.procedures.{self.procedure}")


STEPS = (
    DeclaredStep(
        "compact",
        "compact_table",
        {
            "target": "target",
            "where": "where",
            "branch": "branch",
            "max_bytes": "max_bytes",
            "strategy": "strategy",
            "sort_order": "sort_order",
        },
        {
            "target": "target",
            "where": "where",
            "max-bytes": "max_bytes",
            "strategy": "strategy",
            "sort-order": "sort_order",
            "max-depth": "max_depth",
        },
        together=frozenset(("strategy", "sort_order")),
        inherited=inherited_names("compact"),
    ),
    DeclaredStep("position_deletes", "rewrite_position_deletes", {"branch": "branch"}),
    DeclaredStep(
        "manifests",
        "rewrite_manifests",
        {"branch": "branch"},
        {"manifests.sort-by": "sort_by"},
        inherited=inherited_names("manifests"),
    ),
    DeclaredStep(
        "expire",
        "expire_snapshots",
        {"older_than": "older_than", "retain_last": "retain_last", "quarantine": "quarantine"},
        {"expire.older-than": "older_than", "expire.retain-last": "retain_last", "quarantine": "quarantine"},
        inherited=inherited_names("expire"),
    ),
    DeclaredStep(
        "orphans",
        "remove_orphans",
        {"orphans_older_than": "older_than", "quarantine": "quarantine"},
        {"orphans.older-than": "older_than", "quarantine": "quarantine"},
        inherited=inherited_names("orphans"),
    ),
)


def chosen_steps(arguments: Arguments, properties: Mapping[str, str]) -> tuple[DeclaredStep, ...]:
    """Return the steps that the call or the table property names, in the safe order."""
    property_text = properties.get(f"{PROPERTY_PREFIX}steps")
    names = arguments["steps"]
    if names is None:
        if not property_text:
            return STEPS
        names = property_text.split(",")
    wanted = [name.strip().lower() for name in names]
    known = [step.name for step in STEPS]
    if not wanted:
        raise InvalidArgumentError(
            "steps is empty", argument="steps", value=names, hint=f"Name some of {', '.join(known)}, or leave it out."
        )
    source = f"the table's property {PROPERTY_PREFIX}steps" if arguments["steps"] is None else "steps"
    for name in wanted:
        if name not in known:
            raise InvalidArgumentError(
                f"{source} names '{name}', which is not one of {', '.join(known)}",
                argument="steps",
                value=name,
                hint=did_you_mean(name, known),
            )
    return tuple(step for step in STEPS if step.name in wanted)


def steps_of(
    context: Context, arguments: Arguments, declared: Sequence[DeclaredStep], properties: Mapping[str, str]
) -> tuple[Step, ...]:
    """Return the steps with their requests; an invalid argument of any step raises before the first step runs."""
    from iceberg_compact_sql.actions.maintain import Step

    return tuple(Step(step.name, step.request_of(_bound(context, step, arguments, properties))) for step in declared)


def _bound(context: Context, step: DeclaredStep, arguments: Arguments, properties: Mapping[str, str]) -> Arguments:
    procedure = step.declaration
    from_call = {inner: arguments[outer] for outer, inner in step.arguments.items() if outer in arguments.given}
    from_call.update({name: arguments[name] for name in step.inherited & arguments.given})
    given = {"table": GivenArgument(arguments["table"], "table")}
    sources: dict[str | None, str] = {}
    for suffix, name in step.properties.items():
        text = properties.get(PROPERTY_PREFIX + suffix)
        replaced = name in step.together and not step.together.isdisjoint(from_call)
        if text is not None and name not in from_call and not replaced:
            parameter = procedure.parameter(name)
            listed = parameter is not None and parameter.kind is Kind.STRINGS
            given[name] = GivenArgument([item.strip() for item in text.split(",")] if listed else text, name)
            sources[name] = PROPERTY_PREFIX + suffix
    try:
        bound = bind(procedure, list(given.values()), now_ms=context.now_ms, time_zone=lambda: context.view.time_zone)
        bound = bound.replace(**from_call, dry_run=arguments["dry_run"])
        if procedure.check is not None:
            procedure.check(context, bound)
    except IcebergCompactError as error:
        if error.argument in sources:
            error.hint = f"It is the table's property {sources[error.argument]}. {error.hint or ''}".strip()
        raise error.with_procedure(procedure.name)  # noqa: B904 - the same error, named
    return bound
