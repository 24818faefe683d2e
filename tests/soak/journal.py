"""What a writer meant to do and what it knows to have done; it survives kill -9 at any moment."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Step:
    """One commit of a writer: keys that go, and keys that come with their values."""

    number: int
    drop: tuple[int, ...] = ()
    put: dict[int, str] = field(default_factory=dict)

    def applied_to(self, state: dict[int, str]) -> dict[int, str]:
        return {**{key: value for key, value in state.items() if key not in self.drop}, **self.put}


class Journal:
    """An append-only file of intents and outcomes; `state` is what the writer's rows must be."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.state: dict[int, str] = {}
        self.pending: Step | None = None
        self.steps = 0
        self.landed = 0
        for line in path.read_text().splitlines() if path.exists() else []:
            # A line that was cut off by a kill was never followed by an action.
            if line.endswith("}"):
                self._take(json.loads(line))

    def intend(self, step: Step) -> None:
        """On disk before the step is tried."""
        self._write({"step": asdict(step)})

    def settle(self, landed: bool) -> None:
        """The pending step is known to be in the table, or known not to be."""
        self._write({"landed": landed})

    def _write(self, record: dict[str, Any]) -> None:
        with self._path.open("a") as file:
            # A new line first: the end of a record that a kill cut off is not joined with this one.
            file.write("\n" + json.dumps(record))
            file.flush()
            os.fsync(file.fileno())
        self._take(json.loads(json.dumps(record)))

    def _take(self, record: dict[str, Any]) -> None:
        if "step" in record:
            step = record["step"]
            put = {int(key): value for key, value in step["put"].items()}
            self.pending = Step(step["number"], tuple(step["drop"]), put)
            self.steps = self.pending.number
            return
        if record["landed"] and self.pending is not None:
            self.state = self.pending.applied_to(self.state)
            self.landed += 1
        self.pending = None
