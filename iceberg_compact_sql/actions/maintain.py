"""The work of `maintain_table`: runs other actions in a safe order, and stops after the first failure."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from iceberg_compact_sql import events
from iceberg_compact_sql.actions.compact import compact, plan_compact
from iceberg_compact_sql.actions.compact_request import CompactRequest
from iceberg_compact_sql.actions.context import Context
from iceberg_compact_sql.actions.expire import ExpireRequest, expire, plan_expire
from iceberg_compact_sql.actions.merge_position_deletes import (
    PositionDeletesRequest,
    plan_position_deletes,
    rewrite_position_deletes,
)
from iceberg_compact_sql.actions.orphans import OrphansRequest, plan_orphans, remove_orphans
from iceberg_compact_sql.actions.rewrite_manifests import ManifestsRequest, plan_manifests, rewrite_manifests
from iceberg_compact_sql.errors import (
    CommitUnknownError,
    IcebergCompactError,
    InvalidArgumentError,
    NotFoundError,
    RunCancelledError,
    UnsupportedError,
)
from iceberg_compact_sql.redaction import redact

StepRequest: TypeAlias = CompactRequest | PositionDeletesRequest | ManifestsRequest | ExpireRequest | OrphansRequest
# For each kind of request: the action that plans it and the action that runs it.
_ACTIONS: dict[type, tuple[Callable[[Any, Context], object], Callable[[Any, Context], object]]] = {
    CompactRequest: (plan_compact, compact),
    PositionDeletesRequest: (plan_position_deletes, rewrite_position_deletes),
    ManifestsRequest: (plan_manifests, rewrite_manifests),
    ExpireRequest: (plan_expire, expire),
    OrphansRequest: (plan_orphans, remove_orphans),
}


@dataclass(frozen=True)
class Step:
    """The name of a step, and the request of its action."""

    name: str
    request: StepRequest


@dataclass(frozen=True, kw_only=True)
class MaintainRequest:
    """Steps in the order in which they run. With `plan_only` each step is planned and nothing is changed."""

    steps: tuple[Step, ...]
    plan_only: bool = False


@dataclass(frozen=True, kw_only=True)
class StepResult:
    """How a step ended.

    `outcome` is `done`, `planned`, `refused` (the table does not allow it), `failed`, `unknown` (the catalog
    did not say whether a commit landed), `cancelled` or `not run`. `result` is the action's own result or plan, also
    the partial one of a cancelled step; `error` is the text of what was raised.
    """

    step: Step
    outcome: str
    result: object = None
    error: str = ""
    elapsed_ms: int = 0


@dataclass(frozen=True)
class MaintainResult:
    steps: tuple[StepResult, ...]


def maintain(request: MaintainRequest, context: Context) -> MaintainResult:
    """Run the steps; stop after a step that fails, or whose commit may not have landed.

    A step that the table does not allow is reported and skipped. A cancelled run raises RunCancelledError: its
    `result` has every step, with what the cancelled one had done.
    """
    ended: list[StepResult] = []

    def done() -> tuple[MaintainResult, str]:
        left = (StepResult(step=step, outcome="not run") for step in request.steps[len(ended) :])
        finished = [result.step.name for result in ended if result.outcome in ("done", "planned")]
        return MaintainResult((*ended, *left)), f"Steps that are done: {', '.join(finished) or 'none'}."

    with context.run(done):
        begun = time.monotonic()
        for step in request.steps:
            if ended and ended[-1].outcome in ("failed", "unknown", "not run"):
                ended.append(StepResult(step=step, outcome="not run", error=_doubt(ended)))
                continue
            events.reach("maintain.step", step=step.name)
            passed_ms = int((time.monotonic() - begun) * 1000)
            ended.append(_run_step(step, request.plan_only, context.at(context.now_ms + passed_ms), first=not ended))
            if ended[-1].outcome == "cancelled":
                raise events.RunCancelled
    return MaintainResult(tuple(ended))


def _doubt(ended: list[StepResult]) -> str:
    stopped_by = next(result.step.name for result in ended if result.outcome in ("failed", "unknown"))
    return f"{stopped_by} left doubt"


def _run_step(step: Step, plan_only: bool, context: Context, *, first: bool) -> StepResult:
    started = time.monotonic()
    outcome, result, error = _outcome(step, plan_only, context, first=first)
    elapsed_ms = int((time.monotonic() - started) * 1000)
    return StepResult(step=step, outcome=outcome, result=result, error=error, elapsed_ms=elapsed_ms)


def _outcome(step: Step, plan_only: bool, context: Context, *, first: bool) -> tuple[str, object, str]:
    plan, act = _ACTIONS[type(step.request)]
    try:
        return ("planned", plan(step.request, context), "") if plan_only else ("done", act(step.request, context), "")
    except RunCancelledError as error:
        return "cancelled", error.result, str(error)
    except UnsupportedError as error:
        return "refused", None, str(error)
    except CommitUnknownError as error:
        return "unknown", None, str(error)
    except (InvalidArgumentError, NotFoundError) as error:
        if first:
            # Nothing has been done yet: the arguments are wrong.
            raise
        return "failed", None, str(error)
    except IcebergCompactError as error:
        return "failed", None, str(error)
    except Exception as error:
        if first:
            raise
        # An error of a store or catalog must not hide the results of earlier steps.
        return "failed", None, f"{type(error).__name__}: {redact(error)}"
