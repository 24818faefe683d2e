"""A real Connect server with the jar: a client that knows nothing of this package, and one that registered it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.programs import ROOT, server, surroundings

_CLASS = "org.apache.spark.sql.connect.service.SparkConnectServer"
# Runs where the package cannot be imported: the client is plain pyspark.
_CLIENT = """
import sys, threading, time
from pathlib import Path
from pyspark.sql import SparkSession
from pyspark.errors import AnalysisException

port, folder = sys.argv[1], Path(sys.argv[2])
spark = SparkSession.builder.remote(f"sc://127.0.0.1:{port}").getOrCreate()

plan = spark.sql("CALL compact_table('local.db.events', dry_run => true)")
print("dry run", plan.collect()[0].action, dict(plan.dtypes)["estimated_seconds"])

result = spark.sql("CALL compact_table(:table, target => :target)", args={"table": "local.db.events", "target": "1MB"})
print("compacted", result.collect()[0][:2], result.count(), dict(result.dtypes)["snapshot_id"])

score = spark.sql("CALL score_partitions(?)", args=["local.db.events"])
print("scored", score.filter("score >= 0").count(), dict(score.dtypes)["last_written_at"])

try:
    spark.sql("CALL compact_table('local.db.events', targt => '1MB')")
except AnalysisException as error:
    print("refused", error.getCondition(), error.getSqlState(), "Did you mean 'target'?" in str(error))

# dbt and notebooks match these conditions of Spark.
for arguments in ("", "'t', table => 't'", "'t', nope => 1", "table => 't', 'binpack'", "'t', 'binpack', 'x', 5"):
    try:
        spark.sql(f"CALL local.system.rewrite_data_files({arguments})")
    except AnalysisException as error:
        print(error.getCondition())

(folder / "stall").touch()
outcome = []
def call():
    try:
        spark.sql("CALL help()").collect()
        outcome.append("finished")
    except Exception as error:
        outcome.append("cancelled" if "CANCEL" in str(error).upper() else str(error))
thread = threading.Thread(target=call)
thread.start()
while not (folder / "stalled").exists():
    time.sleep(0.02)
spark.interruptAll()
thread.join(30)
(folder / "stall").unlink()
print("interrupted", outcome[0], (folder / "interrupted").exists())
print("after", spark.sql("CALL help()").count() > 0)
spark.stop()
"""

# A Databricks-style notebook on a Connect session: `register` patches this client, and the jar is not asked.
_NOTEBOOK = """
import sys
from pyspark.sql import SparkSession

spark = SparkSession.builder.remote(f"sc://127.0.0.1:{sys.argv[1]}").getOrCreate()
exec(compile(open(sys.argv[2]).read(), sys.argv[2], "exec"), {"spark": spark, "display": lambda frame: frame.show()})
spark.stop()
"""


@pytest.mark.timeout(240)
def test_unpatched_and_patched_clients_of_one_server(tmp_path: Path) -> None:
    around = surroundings(tmp_path)
    around.create("db.events")
    host = ["--conf", "spark.connect.grpc.binding.address=127.0.0.1"]
    with server(around, _CLASS, "spark.connect.grpc.binding.port", *host) as port:
        plain = {key: value for key, value in around.environment.items() if key != "PYTHONPATH"}
        client = _run(_CLIENT, plain, port, tmp_path)
        assert client.stdout.splitlines() == [
            "dry run rewrite double",
            "compacted (6, 1) 1 bigint",
            "scored 1 timestamp",
            "refused ICEBERG_COMPACT_INVALID_ARGUMENT 22023 True",
            "REQUIRED_PARAMETER_NOT_FOUND",
            "DUPLICATE_ROUTINE_PARAMETER_ASSIGNMENT.BOTH_POSITIONAL_AND_NAMED",
            "UNRECOGNIZED_PARAMETER_NAME",
            "UNEXPECTED_POSITIONAL_ARGUMENT",
            "DATATYPE_MISMATCH.UNEXPECTED_INPUT_TYPE",
            "interrupted cancelled True",
            "after True",
        ], client.stdout + client.stderr
        assert around.state("db.events") == (1, list(range(12)), 7)

        with around.catalog() as catalog:
            catalog.drop_table("db.events")
        around.create("db.events", files=7)
        notebook = _run(_NOTEBOOK, around.environment, port, ROOT / "sql_examples" / "databricks_notebook.py")
        assert notebook.returncode == 0, notebook.stdout + notebook.stderr
        assert "7 files became 1 in " in notebook.stdout
        assert around.state("db.events")[:2] == (1, list(range(14)))


def _run(script: str, environment: dict[str, str], port: int, path: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script, str(port), str(path)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
