"""Run Iceberg's own tests of its five procedures against this package: `python -m tests.iceberg_junit`.

The tests are those that Iceberg publishes, with its hive, hadoop, session and REST catalogs. Our jar is on the class
path and takes over, so that every CALL of the tests runs in this package. It takes about ten minutes. Iceberg's tests
delete files that are seconds old, which `spark.testing` allows in Iceberg. So the guard of 24 hours is off in this run.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path

import iceberg_compact_sql
from tests.support.jars import PYSPARK_JARS, Jar, fetch

ICEBERG_VERSION = "1.11.0"
_PACKAGE = "org.apache.iceberg.spark.extensions"
CLASSES = (
    "TestRewriteDataFilesProcedure",
    "TestExpireSnapshotsProcedure",
    "TestRemoveOrphanFilesProcedure",
    "TestRewriteManifestsProcedure",
    "TestRewritePositionDeleteFilesProcedure",
)
# Differences on purpose; docs/limits.md gives the reasons.
DELIBERATE = {
    ("TestRemoveOrphanFilesProcedure", "testRemoveOrphanFilesProcedureWithEqualAuthorities"): "file://localhost",
    ("TestRewriteDataFilesProcedure", "testRewriteDataFilesWithInvalidInputs"): "messages of Iceberg 1.12",
    ("TestRewriteDataFilesProcedure", "testRewriteDataFilesWithZOrder"): "curves over ranks",
    (
        "TestRewriteDataFilesProcedure",
        "testRewriteDataFilesWithZOrderAndMultipleShufflePartitionsPerFile",
    ): "curves over ranks",
}
_WITH_TESTS = (
    "iceberg-spark-extensions-4.1_2.13",
    "iceberg-spark-4.1_2.13",
    "iceberg-core",
    "iceberg-api",
    "iceberg-data",
    "iceberg-hive-metastore",
)
_ALONE = ("iceberg-parquet", "iceberg-orc", "iceberg-arrow", "iceberg-common", "iceberg-bundled-guava")
_JETTY_VERSION = "12.1.8"
JARS = [
    *(Jar("org.apache.iceberg", name, ICEBERG_VERSION, transitive=True) for name in (*_WITH_TESTS, *_ALONE)),
    *(Jar("org.apache.iceberg", name, ICEBERG_VERSION, "tests") for name in _WITH_TESTS),
    Jar("org.apache.iceberg", "iceberg-open-api", ICEBERG_VERSION, "test-fixtures"),
    Jar("org.junit.platform", "junit-platform-console-standalone", "1.13.4"),
    Jar("org.assertj", "assertj-core", "3.27.3", transitive=True),
    Jar("org.awaitility", "awaitility", "4.3.0", transitive=True),
    Jar("org.mockito", "mockito-core", "4.11.0", transitive=True),
    Jar("org.xerial", "sqlite-jdbc", "3.50.3.0"),
    Jar("org.eclipse.jetty.ee10", "jetty-ee10-servlet", _JETTY_VERSION, transitive=True),
    Jar("org.eclipse.jetty.compression", "jetty-compression-server", _JETTY_VERSION, transitive=True),
    Jar("org.eclipse.jetty.compression", "jetty-compression-gzip", _JETTY_VERSION, transitive=True),
]
# Spark has these in its own versions; the file names of fetched jars start with the organisation.
_FROM_SPARK = (
    "com.fasterxml.jackson",
    "com.github.luben",
    "com.google.flatbuffers",
    "commons-",
    "io.netty",
    "org.antlr",
    "org.apache.arrow",
    "org.apache.avro",
    "org.apache.commons",
    "org.apache.datasketches",
    "org.scala-lang",
    "org.slf4j",
    "org.xerial.snappy",
)
_OPENED = (
    *("java.lang", "java.lang.invoke", "java.lang.reflect", "java.io", "java.net", "java.nio", "java.util"),
    *("java.util.concurrent", "java.util.concurrent.atomic", "jdk.internal.ref", "sun.nio.ch", "sun.nio.cs"),
    *("sun.security.action", "sun.util.calendar"),
)
_GUARD_OFF = """
import importlib.util, sys


class GuardOff:
    def find_spec(self, name, path=None, target=None):
        if name != "iceberg_compact_sql.reclaim.orphans":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        self.loader, spec.loader = spec.loader, self
        return spec

    def create_module(self, spec):
        return self.loader.create_module(spec)

    def exec_module(self, module):
        self.loader.exec_module(module)
        module.LEAST_AGE_MS = -(10**12)


sys.meta_path.insert(0, GuardOff())
"""


def command(classes: list[str], scratch: Path) -> list[str]:
    """The command line of JUnit's console launcher with Spark, Iceberg, its tests and our jar."""
    fetched = [jar for jar in fetch("iceberg-junit", JARS) if not jar.name.startswith(_FROM_SPARK)]
    spark = [jar for jar in sorted(PYSPARK_JARS.glob("*.jar")) if not jar.name.startswith("parquet-")]
    ours = Path(iceberg_compact_sql.__file__).parent / "jvm" / "iceberg-compact-sql.jar"
    settings = {
        "java.io.tmpdir": scratch / "tmp",
        "derby.stream.error.file": scratch / "derby.log",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.iceberg_compact_sql.takeover": "true",
        "spark.iceberg_compact_sql.progress": "false",
        "spark.iceberg_compact_sql.python": sys.executable,
        "spark.iceberg_compact_sql.python_start_timeout": "300s",
        "spark.iceberg_compact_sql.python_silence_timeout": "300s",
    }
    return [
        "java",
        "-Xmx2g",
        *(f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in _OPENED),
        "-Djdk.reflect.useDirectMethodHandle=false",
        "-Dio.netty.tryReflectionSetAccessible=true",
        *(f"-D{key}={value}" for key, value in settings.items()),
        "-cp",
        os.pathsep.join(map(str, (*fetched, ours, *spark))),
        "org.junit.platform.console.ConsoleLauncher",
        "execute",
        "--disable-banner",
        "--details=none",
        f"--reports-dir={scratch / 'reports'}",
        *(f"--select-class={_PACKAGE}.{name}" for name in classes),
    ]


def run(classes: list[str], scratch: Path) -> int:
    """Run the classes, print a line for each of them and for each failure; return how many failed unexpectedly."""
    for folder in ("tmp", "site"):
        (scratch / folder).mkdir()
    (scratch / "site" / "sitecustomize.py").write_text(_GUARD_OFF)
    around = {
        "PYTHONPATH": os.pathsep.join(filter(None, (str(scratch / "site"), os.environ.get("PYTHONPATH")))),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_HOME": str(PYSPARK_JARS.parent),
    }
    with (scratch / "log").open("w") as log:
        subprocess.run(
            command(classes, scratch),
            cwd=scratch,
            env={**os.environ, **around},
            stdout=log,
            stderr=subprocess.STDOUT,
            check=False,
        )
    outcomes: Counter[tuple[str, str]] = Counter()
    unexpected = 0
    for report in (scratch / "reports").glob("*.xml"):
        for case in ElementTree.parse(report).getroot().iter("testcase"):
            key = case.get("classname", "").rpartition(".")[2], case.get("name", "").partition("(")[0]
            failure = next((case.find(tag) for tag in ("failure", "error") if case.find(tag) is not None), None)
            outcome = "skipped" if case.find("skipped") is not None else "passed"
            if failure is not None:
                outcome = "differs on purpose" if key in DELIBERATE else "failed"
                unexpected += outcome == "failed"
                print(f"{outcome}: {key[0]}.{key[1]}: {failure.get('message', '').strip()[:300]}")
            outcomes[key[0], outcome] += 1
    for (name, outcome), count in sorted(outcomes.items()):
        print(f"{name}: {count} {outcome}")
    missing = [name for name in classes if not any(name == found for found, _ in outcomes)]
    if missing:
        print((scratch / "log").read_text()[-4000:])
    return unexpected + len(missing)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.iceberg_junit", description=__doc__)
    parser.add_argument("classes", nargs="*", default=list(CLASSES), help="test classes, such as " + CLASSES[1])
    with tempfile.TemporaryDirectory() as scratch:
        return min(run(parser.parse_args().classes, Path(scratch)), 1)


if __name__ == "__main__":
    raise SystemExit(main())
