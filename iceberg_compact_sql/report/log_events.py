"""Writes the log lines of a run from its events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from iceberg_compact_sql.redaction import masked_logger

_log = masked_logger(__name__)


def log_event(event: str, facts: Mapping[str, Any]) -> None:
    """Log failures, conflicts and remarks; a listener of events."""
    if event == "compact.group_failed":
        _log.warning(
            "compact_table %s: group %d failed (%d files): %s",
            facts["table"],
            facts["group_id"],
            facts["files"],
            facts["reason"],
        )
    elif event == "compact.commit_failed":
        _log.warning("compact_table %s: a commit failed: %s", facts["table"], facts["reason"])
    elif event == "compact.conflict":
        _log.info(
            "compact_table %s: %d group(s) in conflict, planned again (attempt %d): %s",
            facts["table"],
            facts["groups"],
            facts["attempt"],
            facts["reason"],
        )
    elif event == "compact.left":
        _log.info(
            "compact_table %s: %d group(s) left for another run, the time budget is used up",
            facts["table"],
            facts["groups"],
        )
    elif event == "compact.group":
        for note in facts["notes"]:
            _log.info("compact_table %s: group %d: %s", facts["table"], facts["group_id"], note)
