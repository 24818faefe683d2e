"""Airflow: one task for each table, so that a failure and its retry concern one table only."""

from __future__ import annotations

import datetime as dt

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG

CONFIG = "/etc/iceberg-compact/config.yaml"
TABLES = ("db.events", "db.orders")

with DAG(
    dag_id="iceberg_compact",
    schedule="30 2 * * *",
    start_date=dt.datetime(2026, 1, 1, tzinfo=dt.timezone.utc),
    catchup=False,
    # A table is maintained by one run at a time.
    max_active_runs=1,
    default_args={"retries": 1, "retry_delay": dt.timedelta(minutes=15)},
) as dag:
    for table in TABLES:
        BashOperator(
            task_id=f"compact_{table.replace('.', '_')}",
            bash_command=(
                f"iceberg-compact --config {CONFIG} --table {table} --expire-snapshots --orphans --format json"
            ),
        )
