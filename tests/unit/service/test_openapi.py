"""Every operation of the OpenAPI document under generated requests: no answer is a 5xx."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings

from iceberg_compact_sql.service.configuration.config import service_config
from iceberg_compact_sql.service.http.app import create_app
from iceberg_compact_sql.service.process import Service
from tests.support.plain import open_plain
from tests.unit.actions.test_compact_faults import fragmented


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[schemathesis.BaseSchema]:
    folder: Path = tmp_path_factory.mktemp("openapi")
    with open_plain(folder / "plain") as lake:
        fragmented(lake)
        document = {
            "spark": {"conf": lake.conf},
            "state": {"folder": str(folder / "state")},
            "server": {"allowed_hosts": ["testserver"]},
            "tables": [{"name": "db.t", "schedule": "0 3 * * *"}],
        }
        service = Service(service_config(document), with_spark=False)
        service.open()
        yield schemathesis.openapi.from_asgi("/openapi.json", create_app(service))
        service.close()


def test_no_request_is_a_server_error(api: schemathesis.BaseSchema) -> None:
    operations = [result.ok() for result in api.get_all_operations()]
    assert len(operations) > 15
    for operation in operations:

        @settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
        @given(case=operation.as_strategy())
        def ask(case: schemathesis.Case) -> None:
            assert case.call().status_code < 500, case.as_curl_command()

        ask()
