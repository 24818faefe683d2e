"""Metrics and traces of a call, where the session and the installed packages ask for them."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

from iceberg_compact_sql.actions.context import Context
from iceberg_compact_sql.call.declaration import Arguments, Procedure
from iceberg_compact_sql.errors import MissingDependencyError
from iceberg_compact_sql.events import listening
from iceberg_compact_sql.redaction import masked_logger

_log = masked_logger(__name__)


@contextlib.contextmanager
def measured(procedure: Procedure, context: Context, arguments: Arguments) -> Iterator[None]:
    """Count the actions of the block and write the metrics file that `spark.iceberg_compact_sql.metrics` names.

    Raises before the block when the file cannot be written. The file is written after failures too.
    """
    path = context.view.setting("metrics")
    if not path or not procedure.changes_tables or arguments.get("dry_run"):
        yield
        return
    try:
        # Imported late: it is an extra.
        from iceberg_compact_sql.report.metrics import process_metrics, require_textfile
    except ImportError:
        raise MissingDependencyError(
            f"setting spark.iceberg_compact_sql.metrics is {path!r}, and prometheus-client is not installed",
            hint="Run: pip install 'iceberg-compact-sql[metrics]'",
        ) from None
    require_textfile(path)
    metrics = process_metrics()
    try:
        with listening(metrics.listener):
            yield
    finally:
        try:
            metrics.write_textfile(path)
        except OSError as error:
            # The change itself is done, and its result counts.
            _log.warning("the metrics file %s cannot be written: %s", path, error.strerror)


@contextlib.contextmanager
def traced() -> Iterator[None]:
    """Make spans of the block, when the process has set up OpenTelemetry's SDK; nothing otherwise."""
    # An application that traces has loaded the SDK. Without it spans would be made for nobody.
    if "opentelemetry.sdk.trace" not in sys.modules:
        yield
        return
    # Imported late: it is an extra.
    from iceberg_compact_sql.report.tracing import Tracing

    with listening(Tracing().listener):
        yield
