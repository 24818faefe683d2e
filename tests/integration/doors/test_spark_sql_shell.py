"""The real spark-sql with the jar on `--jars`: results, errors, and a Python child in trouble."""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path

from tests.support.programs import alive, spark_sql, surroundings, wait_until


def proc(process: int, name: str) -> list[str]:
    """What Linux shows of a process, entry by entry."""
    return Path(f"/proc/{process}/{name}").read_text().split("\0")


def test_a_table_is_compacted_in_the_shell(tmp_path: Path) -> None:
    around = surroundings(tmp_path)
    around.create("db.events")
    with spark_sql(around) as shell:
        lines, _ = shell.run("CALL help('compact_table')")
        assert lines[0].split("\t")[:4] == ["compact_table", "table", "string", "required"]

        lines, _ = shell.run("-- what would be done\nCALL compact_table('local.db.events', dry_run => true)")
        assert [(line.split("\t")[3], line.split("\t")[5]) for line in lines] == [("rewrite", "6")]

        lines, stderr = shell.run("SET hivevar:t=events;\nCALL compact_table('db.${t}', /* small */ target => '1MB')")
        row = next(line for line in lines if not line.startswith("hivevar")).split("\t")
        assert row[:2] == ["6", "1"], (lines, stderr)
        assert around.state("db.events") == (1, list(range(12)), 7)

        for spelling in ("call\n`help`\n(\n)", "/* one /* two */ */ CaLl -- three\n system . HELP ( )", "CALL help();"):
            assert shell.run(spelling)[0], spelling

        lines, _ = shell.run("CALL compact_table('db.events')")
        assert lines[0].split("\t")[:2] == ["0", "0"]
        assert lines[0].split("\t")[10] == "NULL"

        _, stderr = shell.run("CALL compact_table('db.events', targt => '1MB')")
        assert stderr.splitlines()[0] == (
            "[ICEBERG_COMPACT_INVALID_ARGUMENT] compact_table: unknown argument 'targt' (line 1, column 33)."
            " Did you mean 'target'? SQLSTATE: 22023"
        )
        _, stderr = shell.run("CALL compact_table('db.nothing')")
        assert stderr.startswith("[ICEBERG_COMPACT_NOT_FOUND] compact_table: ") and "SQLSTATE: 42704" in stderr
        assert "\tat " not in stderr

        # What is not ours is answered by Spark.
        _, stderr = shell.run("CALL compact_tables('db.events')")
        assert stderr.startswith("[MISSING_CATALOG_ABILITY") or stderr.startswith("[UNRESOLVED_ROUTINE")
        _, stderr = shell.run("EXPLAIN CALL compact_table('db.events')")
        assert "ICEBERG_COMPACT" not in stderr
        assert around.state("db.events")[2] == 7

        child = around.child_pid()
        assert alive(child)
        environment = dict(entry.split("=", 1) for entry in proc(child, "environ") if "=" in entry)
        for process in (child, shell.process.pid):
            assert environment["PYSPARK_GATEWAY_SECRET"] not in " ".join(proc(process, "cmdline"))
        with socket.create_connection(("127.0.0.1", int(environment["PYSPARK_GATEWAY_PORT"])), timeout=20) as stranger:
            stranger.sendall(b"c\nj\nexit\ne\n")
            assert b"Authentication error" in stranger.recv(100)
        os.kill(shell.process.pid, signal.SIGKILL)
        wait_until(lambda: not alive(child), "the Python child outlived a shell that was killed")


def test_the_shell_survives_its_python_child(tmp_path: Path) -> None:
    around = surroundings(tmp_path)
    around.put("no-package")
    with spark_sql(around) as shell:
        _, stderr = shell.run("CALL help()")
        assert "CALL needs the Python package iceberg-compact-sql, and " in stderr
        assert "-m pip install iceberg-compact-sql'" in stderr and "SQLSTATE: 58000" in stderr
        # A call that is another's is not disturbed by the missing package.
        assert "ICEBERG_COMPACT" not in shell.run("CALL spark_catalog.system.rewrite_data_files('t')")[1]
        around.take("no-package")
        assert shell.run("CALL help()")[0]

        around.put("stall")
        shell.send("CALL help()")
        around.await_file("stalled")
        os.kill(around.child_pid(), signal.SIGKILL)
        _, stderr = shell.result()
        assert "ended with exit code 137 before it answered" in stderr and "is not known" in stderr
        around.take("stall")
        assert shell.run("CALL help()")[0]

        shell.run("SET spark.iceberg_compact_sql.python_silence_timeout=5s")
        around.put("stall")
        shell.send("CALL help()")
        around.await_file("stalled")
        os.kill(around.child_pid(), signal.SIGSTOP)
        _, stderr = shell.result()
        assert "stopped answering and was ended before it answered" in stderr
        around.take("stall")
        assert shell.run("CALL help()")[0]

        shell.run("RESET spark.iceberg_compact_sql.python_silence_timeout")
        # Ctrl-C goes to the shell and to its child, as a terminal sends it.
        child = around.child_pid()
        around.put("stall")
        shell.send("CALL help()")
        around.await_file("stalled")
        os.killpg(shell.process.pid, signal.SIGINT)
        around.await_file("interrupted")
        _, stderr = shell.result()
        assert "[ICEBERG_COMPACT_CANCELLED] help: cancelled before it began. Nothing was changed." in stderr
        around.take("stall")
        assert shell.run("CALL help()")[0]
        assert around.child_pid() == child
    wait_until(lambda: not alive(child), "the Python child outlived the shell")
