"""Jars for tests, fetched once from Maven Central with the Ivy that pip's pyspark carries."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import quoteattr

import pyspark

PYSPARK_JARS = Path(pyspark.__file__).parent / "jars"
# Fixed when the tests start: a test may change HOME for itself.
_USER_CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
_CACHE = Path(os.environ.get("ICEBERG_COMPACT_TEST_CACHE") or _USER_CACHE / "iceberg-compact-sql-tests")


@dataclass(frozen=True)
class Jar:
    """One Maven artifact; `transitive` takes what it depends on too."""

    organisation: str
    name: str
    revision: str
    classifier: str = ""
    transitive: bool = False


def cache_folder() -> Path:
    """Where fetched jars stay between runs; `ICEBERG_COMPACT_TEST_CACHE` moves it."""
    _CACHE.mkdir(parents=True, exist_ok=True)
    return _CACHE


@contextlib.contextmanager
def machine_lock(name: str) -> Iterator[None]:
    """Let one process of this user at a time into the block; released by the kernel if its owner dies."""
    with (cache_folder() / f"{name}.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def fetch(name: str, jars: Sequence[Jar]) -> list[Path]:
    """The files of `jars`, downloaded at most once a machine; safe when several test workers ask at once."""
    key = "_".join(sorted(f"{jar.name}{jar.classifier}{jar.revision}" for jar in jars))
    folder = cache_folder() / f"{name}-{abs(_stable_hash(key)):08x}"
    with machine_lock("jars"):
        if not folder.is_dir():
            _retrieve(name, jars, folder)
    return sorted(folder.glob("*.jar"))


def _retrieve(name: str, jars: Sequence[Jar], folder: Path) -> None:
    ivy = next(PYSPARK_JARS.glob("ivy-*.jar"))
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        ivy_file = Path(scratch) / "ivy.xml"
        ivy_file.write_text(_ivy_xml(name, jars))
        pattern = f"{scratch}/jars/[organisation]_[artifact]-[revision](-[classifier]).[ext]"
        cache = cache_folder() / "ivy"
        command = ["java", "-jar", str(ivy), "-ivy", str(ivy_file), "-cache", str(cache), "-retrieve", pattern]
        done = subprocess.run(command, capture_output=True, text=True, timeout=280)
        fetched = list((Path(scratch) / "jars").glob("*.jar"))
        if done.returncode or len(fetched) < len(jars):
            raise RuntimeError(f"fetching {name} with Ivy failed:\n{done.stdout[-4000:]}\n{done.stderr[-2000:]}")
        shutil.move(Path(scratch) / "jars", folder)


def _ivy_xml(name: str, jars: Sequence[Jar]) -> str:
    lines = [
        '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">',
        f'<info organisation="tests" module={quoteattr(name)}/>',
        '<configurations><conf name="default"/></configurations><dependencies>',
    ]
    modules: dict[tuple[str, str, str], list[Jar]] = {}
    for jar in jars:
        modules.setdefault((jar.organisation, jar.name, jar.revision), []).append(jar)
    for (organisation, module, revision), parts in modules.items():
        # The configuration `master` is the jar alone, `default` is the jar with what it needs at run time.
        conf = "default->default" if any(part.transitive for part in parts) else "default->master"
        attributes = {"org": organisation, "name": module, "rev": revision, "conf": conf}
        lines.append("<dependency " + " ".join(f"{key}={quoteattr(value)}" for key, value in attributes.items()) + ">")
        for part in parts:
            classifier = f" m:classifier={quoteattr(part.classifier)}" if part.classifier else ""
            if any(other.classifier for other in parts):
                lines.append(f'<artifact name={quoteattr(module)} type="jar" ext="jar"{classifier}/>')
        lines.append("</dependency>")
    lines.append("</dependencies></ivy-module>")
    return "\n".join(lines)


def _stable_hash(text: str) -> int:
    value = 0
    for byte in text.encode():
        value = (value * 131 + byte) % 2**32
    return value
