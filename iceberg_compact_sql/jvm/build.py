"""Build the jar from its Java sources: `python -m iceberg_compact_sql.jvm.build`.

The same sources give the same bytes. Needs a JDK 17 (`javac`) and the pyspark package; downloads nothing.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import os
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Iterable
from pathlib import Path

from iceberg_compact_sql.errors import MissingDependencyError
from iceberg_compact_sql.jvm import jar_path

_HERE = Path(__file__).resolve().parent
_PACKAGE = "icebergcompactsql"
_SERVICE = "META-INF/services/org.apache.spark.sql.SparkSessionExtensionsProvider"
_EPOCH = (1980, 1, 1, 0, 0, 0)


def build(target: Path, names: Iterable[str] | None = None) -> Path:
    """Compile the sources into a jar at `target` and return it.

    The bytes depend only on the sources, the names of the procedures and the major version of javac: entries are
    sorted, not compressed, and have a fixed date.
    """
    with tempfile.TemporaryDirectory() as scratch:
        stubs, classes = Path(scratch, "stubs"), Path(scratch, "classes")
        _compile(sorted((_HERE / "stubs").rglob("*.java")), stubs, [])
        _compile(sorted((_HERE / "src").rglob("*.java")), classes, [stubs])
        entries = {path.relative_to(classes).as_posix(): path.read_bytes() for path in classes.rglob("*.class")}
    entries[f"{_PACKAGE}/bootstrap.py.txt"] = (_HERE / "src" / _PACKAGE / "bootstrap.py.txt").read_bytes()
    entries[f"{_PACKAGE}/procedure-names.txt"] = _lines(procedure_names() if names is None else sorted(names))
    entries[_SERVICE] = _lines([f"{_PACKAGE}.Extensions"])
    entries["META-INF/MANIFEST.MF"] = _lines(["Manifest-Version: 1.0", f"Sources-SHA-256: {sources_digest()[:48]}"])
    _write(target, entries)
    return target


def procedure_names() -> list[str]:
    """Every procedure name that a CALL may use, including Iceberg's own names."""
    from iceberg_compact_sql.procedures.registry import names

    return sorted(names())


def sources_digest() -> str:
    """The digest of all sources, which the jar's manifest contains."""
    digest = hashlib.sha256()
    for path in sorted((_HERE / "src").rglob("*.*")):
        digest.update(path.relative_to(_HERE).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def _compile(sources: list[Path], into: Path, libraries: list[Path]) -> None:
    into.mkdir()
    class_path = os.pathsep.join([*map(str, libraries), str(_spark_jars() / "*")])
    command = [_javac(), "-nowarn", "-proc:none", "-g:source,lines", "--release", "17", "-cp", class_path]
    completed = subprocess.run(
        [*command, "-d", str(into), *map(str, sources)], capture_output=True, text=True, check=False
    )
    if completed.returncode != 0:
        raise RuntimeError(f"javac failed:\n{completed.stdout}{completed.stderr}")


def _javac() -> str:
    home = os.environ.get("JAVA_HOME")
    javac = shutil.which("javac", path=str(Path(home, "bin"))) if home else None
    javac = javac or shutil.which("javac")
    if javac is None:
        raise MissingDependencyError("building the jar needs javac", hint="Install a JDK 17, or set JAVA_HOME to one.")
    return javac


def _spark_jars() -> Path:
    spec = importlib.util.find_spec("pyspark")
    jars = Path(next(iter(spec.submodule_search_locations or []))) / "jars" if spec else None
    if jars is None or not jars.is_dir():
        raise MissingDependencyError("building the jar needs Spark's jars", hint="Run: pip install pyspark")
    return jars


def _lines(lines: Iterable[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def _write(target: Path, entries: dict[str, bytes]) -> None:
    unfinished = target.with_suffix(".unfinished")
    with zipfile.ZipFile(unfinished, "w", zipfile.ZIP_STORED) as jar:
        # The jar format requires the manifest to be the first entry.
        for name in sorted(entries, key=lambda entry: (entry != "META-INF/MANIFEST.MF", entry)):
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.external_attr = 0o644 << 16
            entry.create_system = 3
            jar.writestr(entry, entries[name])
    unfinished.replace(target)


def main() -> None:
    """Build the package's own jar, or a jar at `--target`."""
    parser = argparse.ArgumentParser(prog="python -m iceberg_compact_sql.jvm.build", description=__doc__)
    parser.add_argument("--target", type=Path, default=jar_path(), help="where to write the jar")
    print(build(parser.parse_args().target))


if __name__ == "__main__":
    main()
