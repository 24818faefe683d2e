"""Named points that a run passes: progress and logs listen here, and so do tests that stop a run at a point.

>>> seen = []
>>> with listening(lambda point, facts: seen.append((point, facts))):
...     reach("plan.done", groups=3)
>>> seen
[('plan.done', {'groups': 3})]
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping

Listener = Callable[[str, Mapping[str, object]], None]

_listeners: list[Listener] = []


def reach(point: str, **facts: object) -> None:
    """Tell every listener of this process that a run has come to `point`; what a listener raises goes up."""
    for listener in tuple(_listeners):
        listener(point, facts)


@contextlib.contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Have `listener` called at every point until the block ends."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)
