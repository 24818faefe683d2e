"""Iceberg table maintenance as Spark SQL: `CALL compact_table('db.events', target => '512MB')`.

import iceberg_compact_sql
iceberg_compact_sql.register(spark)
spark.sql("CALL compact_table('db.events', target => '512MB')").show()
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from iceberg_compact_sql.doors.session import register, unregister
from iceberg_compact_sql.errors import IcebergCompactError

if TYPE_CHECKING:
    from collections.abc import Callable

__version__ = "0.1.0"
__all__ = ["IcebergCompactError", "register", "unregister"]


def __getattr__(name: str) -> Callable[..., Any]:
    """The Python twins of the procedures: `iceberg_compact_sql.compact_table(spark, "db.events")`."""
    from iceberg_compact_sql.doors.session import twins

    found = twins()
    if name in found:
        globals().update(found)
        return found[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    from iceberg_compact_sql.procedures.registry import MODULES

    return sorted({*globals(), *MODULES})
