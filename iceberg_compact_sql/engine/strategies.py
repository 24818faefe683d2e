"""The supported strategies, each with the factory of its runner.

To add a strategy, write a module with a `GroupRunner` and add one line here. Its name is one of `STRATEGY_NAMES`, which
`compact_table` accepts.
"""

from __future__ import annotations

from iceberg_compact_sql.engine.binpack import BinpackRunner
from iceberg_compact_sql.engine.clustering import ClusterRunner
from iceberg_compact_sql.engine.runner import RunnerFactory

STRATEGIES: dict[str, RunnerFactory] = {
    "binpack": BinpackRunner,
    "sort": ClusterRunner,
    "zorder": ClusterRunner,
    "hilbert": ClusterRunner,
}
