"""The module that the jar imports. It must never move, because jars that users have installed import it by name."""

from __future__ import annotations

from iceberg_compact_sql.doors.jvm_child import PROTOCOL, serve

__all__ = ["PROTOCOL", "serve"]
