"""Iceberg table maintenance as Spark SQL: `CALL compact_table('db.events', target => '512MB')`.

Register the procedures on a session, then call them:

    import iceberg_compact_sql

    iceberg_compact_sql.register(spark)
    spark.sql("CALL compact_table('db.events', target => '512MB')").show()

Each procedure is also a function of this module, with the same name, arguments and result:

    iceberg_compact_sql.compact_table(spark, "db.events", target="512MB").show()

The names in `__all__` are public. Everything else may change without notice.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from iceberg_compact_sql.doors.session import register, unregister
from iceberg_compact_sql.errors import IcebergCompactError
from iceberg_compact_sql.procedures.registry import MODULES
from iceberg_compact_sql.version import VERSION as __version__

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["IcebergCompactError", "__version__", "register", "unregister", *MODULES]

# The application decides where log lines go; without a handler of its own Python would print warnings to stderr.
logging.getLogger(__name__).addHandler(logging.NullHandler())


def __getattr__(name: str) -> Callable[..., Any]:
    """Return the Python function of a procedure; `__init__.pyi` has its signature."""
    from iceberg_compact_sql.doors.session import twins

    found = twins()
    if name in found:
        globals().update(found)
        return found[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *MODULES})
