"""How long a request to a store or a catalog may take, and how often it is sent: the same for all of them.

The session's settings `connect_timeout`, `answer_timeout`, `attempts`, `retry_time` and `commit_timeout` become
properties of a catalog. So they reach every client that is made from these properties, in the driver and in tasks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from iceberg_compact_sql.errors import InvalidArgumentError
from iceberg_compact_sql.units import parse_duration_ms

TIMEOUT_PREFIX = "iceberg-compact.request."
_MOST_ATTEMPTS = 100


@dataclass(frozen=True, slots=True)
class RequestTimeouts:
    """The limits of one request.

    With the defaults, a server that does not answer is an error after less than 30 seconds: three attempts of 8 seconds
    and the waits between them. A request that is sent only once may take as long as all attempts together. A commit may
    take longer than that: an unknown outcome is worse than waiting.
    """

    connect_seconds: float = 4.0
    answer_seconds: float = 8.0
    attempts: int = 3
    # An operation that fails for a moment is repeated for this time.
    retry_seconds: float = 10.0
    # A commit: a request to a REST catalog, or the exclusive creation of a version of a hadoop table on HDFS.
    commit_seconds: float = 120.0

    @property
    def patient_seconds(self) -> float:
        """The limit of a request that is sent once: the end of an upload, a copy, 1,000 deletes."""
        return self.answer_seconds * self.attempts


def timeouts_of(properties: Mapping[str, Any]) -> RequestTimeouts:
    """Return the limits that the properties of a catalog or FileIO give."""
    default = RequestTimeouts()

    def number(name: str, otherwise: float) -> float:
        text = properties.get(TIMEOUT_PREFIX + name)
        return otherwise if text is None else float(text)

    return RequestTimeouts(
        number("connect-seconds", default.connect_seconds),
        number("answer-seconds", default.answer_seconds),
        int(number("attempts", default.attempts)),
        number("retry-seconds", default.retry_seconds),
        number("commit-seconds", default.commit_seconds),
    )


def timeout_properties(setting: Callable[[str], str | None], prefix: str) -> dict[str, str]:
    """Return the properties for the settings that the session has; `prefix` is that of the settings in errors."""
    properties: dict[str, str] = {}
    for name in ("connect_timeout", "answer_timeout", "retry_time", "commit_timeout"):
        text = setting(name)
        if text is not None:
            seconds = _seconds(f"{prefix}{name}", text, least=0 if name == "retry_time" else 1)
            properties[f"{TIMEOUT_PREFIX}{name.partition('_')[0]}-seconds"] = str(seconds)
    if (text := setting("attempts")) is not None:
        properties[f"{TIMEOUT_PREFIX}attempts"] = str(_attempts(f"{prefix}attempts", text))
    return properties


def _seconds(name: str, text: str, *, least: int) -> float:
    try:
        milliseconds = parse_duration_ms(text)
    except ValueError as error:
        raise InvalidArgumentError(f"setting {name} is {text!r}, which {error}", value=text) from None
    if not least <= milliseconds <= 86_400_000:
        raise InvalidArgumentError(
            f"setting {name} is {text!r} but must be more than 0 and at most 1 day",
            value=text,
            hint="Give a duration such as '8s'.",
        )
    return milliseconds / 1000


def _attempts(name: str, text: str) -> int:
    # `int` alone also takes '1_0' and digits of other scripts.
    if not re.fullmatch(r"[0-9]{1,3}", text.strip()) or not 1 <= int(text) <= _MOST_ATTEMPTS:
        raise InvalidArgumentError(
            f"setting {name} is {text!r} but must be a whole number from 1 to {_MOST_ATTEMPTS}",
            value=text,
            hint="Give the number of times that a request is sent before it is an error.",
        )
    return int(text)
