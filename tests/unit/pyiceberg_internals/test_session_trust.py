"""Code and store settings are the session's word: never a table's properties', never a server's."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table import Table

from iceberg_compact_sql.catalogs.open_table import close_catalogs, open_table
from iceberg_compact_sql.catalogs.session_view import SessionView
from iceberg_compact_sql.errors import InvalidArgumentError, UnsupportedError
from tests.support.calls import call
from tests.support.handmade import data_paths, make_small_table
from tests.support.plain import PlainLake

PROVIDER = "write.py-location-provider.impl"
MODULE = """
from pathlib import Path
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table.locations import SimpleLocationProvider
Path(__file__).with_name("loaded").touch()
class Files(PyArrowFileIO):
    pass
class Provider(SimpleLocationProvider):
    def new_data_location(self, name, key=None):
        return f"{self.table_location}/data/chosen/{name}"
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, Path]]:
    """The name of a module that anybody may have put on the path, and the file that says that it was imported."""
    name = f"somebodys_{tmp_path.name.replace('-', '_')}"
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / f"{name}.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path / "code"))
    yield name, tmp_path / "code" / "loaded"
    close_catalogs()


@pytest.fixture
def table(plain_lake: PlainLake) -> Table:
    return make_small_table(plain_lake.catalog)


def give(table: Table, properties: dict[str, str], module: tuple[str, Path]) -> None:
    """Set properties, as somebody elsewhere does; what that loads here is forgotten."""
    with table.transaction() as change:
        change.set_properties(properties)
    sys.modules.pop(module[0], None)
    module[1].unlink(missing_ok=True)


def test_a_tables_properties_do_not_open_its_files(
    plain_lake: PlainLake, table: Table, module: tuple[str, Path]
) -> None:
    name, loaded = module
    code = f"{name}.Files"
    give(table, {"py-io-impl": code, "s3.retry-strategy-impl": code, "s3.endpoint": "http://x"}, module)
    view = SessionView(conf=plain_lake.conf, current_catalog=plain_lake.name)
    opened = open_table(view, "db.t")
    assert "s3.endpoint" not in opened.table.io.properties and "py-io-impl" not in opened.reload().table.io.properties
    for statement in (
        "compact_table('db.t', min_input_files => 2)",
        "rewrite_manifests('db.t')",
        "maintain_table('db.t')",
    ):
        call(plain_lake, f"CALL {statement}")
    assert not loaded.exists()
    assert len(data_paths(plain_lake.load("db.t"))) == 1


def test_a_location_provider_needs_the_sessions_word(
    plain_lake: PlainLake, table: Table, module: tuple[str, Path]
) -> None:
    name, loaded = module
    give(table, {PROVIDER: f"{name}.Provider"}, module)
    setting = "spark.iceberg_compact_sql.location_providers"
    other = replace(plain_lake, conf={**plain_lake.conf, setting: "json.loads"})
    for lake in (plain_lake, other):
        with pytest.raises(UnsupportedError, match=f"If you trust it, set {setting} = {name}.Provider"):
            call(lake, "CALL compact_table('db.t', min_input_files => 2)")
    assert not loaded.exists()
    with_trusted_file_io = replace(plain_lake, conf={**plain_lake.conf, setting: f"json.loads, {name}.Provider"})
    call(with_trusted_file_io, "CALL compact_table('db.t', min_input_files => 2)")
    [path] = data_paths(table.refresh())
    assert "/data/chosen/" in path


def test_a_call_names_no_code(plain_lake: PlainLake, table: Table, module: tuple[str, Path]) -> None:
    name, loaded = module
    with pytest.raises(InvalidArgumentError, match="which a call must not load"):
        call(
            plain_lake,
            f"CALL compact_table('db.t', min_input_files => 2, options => map('{PROVIDER}', '{name}.Provider'))",
        )
    assert not loaded.exists()


@pytest.fixture
def server() -> Iterator[tuple[str, dict[str, Any]]]:
    """A REST catalog's server: its address, and what it answers to a path."""
    answers: dict[str, Any] = {}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps(answers[self.path.partition("?")[0]]).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *ignored: object) -> None:
            """Nothing: the test's output stays its own."""

    with HTTPServer(("127.0.0.1", 0), Handler) as http:
        threading.Thread(target=http.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{http.server_port}", answers
        http.shutdown()


@pytest.mark.parametrize(
    ("place", "key"),
    [
        ("defaults", "py-io-impl"),
        ("defaults", "auth"),
        ("overrides", "py-io-impl"),
        ("overrides", "auth"),
        ("table", "py-io-impl"),
        ("table", "s3.retry-strategy-impl"),
        ("credentials", "py-io-impl"),
    ],
)
def test_a_server_configures_stores_and_loads_no_code(
    table: Table, module: tuple[str, Path], server: tuple[str, dict[str, Any]], place: str, key: str
) -> None:
    name, loaded = module
    uri, answers = server
    give(table, {"s3.endpoint": "http://the-tables", "s3.region": "the-tables"}, module)
    code: Any = {"type": "custom", "impl": f"{name}.Files"} if key == "auth" else f"{name}.Files"
    asked = {key: code, "s3.endpoint": "http://the-servers"}
    answers["/v1/config"] = {"defaults": {}, "overrides": {}, place: asked}
    answers["/v1/namespaces/db/tables/t"] = {
        "metadata-location": table.metadata_location,
        "metadata": json.loads(Path(table.metadata_location.removeprefix("file://")).read_text()),
        "config": asked if place == "table" else {},
        "storage-credentials": [{"prefix": "file", "config": asked}] if place == "credentials" else [],
    }
    view = SessionView(conf={"spark.sql.catalog.far.type": "rest", "spark.sql.catalog.far.uri": uri})
    with pytest.raises(UnsupportedError, match="only this session may choose code"):
        open_table(view, "far.db.t")
    assert not loaded.exists()
    del asked[key]
    if key == "py-io-impl":
        asked[key] = "pyiceberg.io.pyarrow.PyArrowFileIO"
    close_catalogs()
    properties = open_table(view, "far.db.t").table.io.properties
    assert properties["s3.endpoint"] == "http://the-servers" and "s3.region" not in properties
