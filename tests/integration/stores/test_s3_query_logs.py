"""Event logs on an object store: listed in the order of their parts, and read in every codec."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from pyiceberg.io.pyarrow import PyArrowFileIO

from iceberg_compact_sql.storage.event_logs import find_logs, open_log
from iceberg_compact_sql.storage.stores import stores_of
from tests.support.s3 import S3Server


def test_logs_on_s3(tmp_path: Path, s3_server: S3Server) -> None:
    stores = stores_of(PyArrowFileIO(s3_server.properties))
    folder = f"s3://{s3_server.bucket}/{tmp_path.name}/logs"
    for number in (1, 2, 10):
        content = pa.Codec("zstd").compress(f'{{"part":{number}}}\n'.encode(), asbytes=True)
        stores.write(f"{folder}/eventlog_v2_app/events_{number}_app.zstd", content)
    stores.write(f"{folder}/eventlog_v2_app/appstatus_app", b"")
    stores.write(f"{folder}/single", b'{"part":0}\n')
    single, rolled = find_logs(stores, folder)
    texts = []
    for path in [*single, *rolled]:
        with open_log(stores, path) as stream:
            texts.append(stream.read())
    assert texts == [f'{{"part":{number}}}\n'.encode() for number in (0, 1, 2, 10)]
    assert find_logs(stores, f"{folder}/single") == [[f"{folder}/single"]]
    assert find_logs(stores, f"{folder}/nothing") == []
