"""The recipes of sql_examples/deploy, as far as a machine without a cluster can check them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import yaml

from iceberg_compact_sql.report.metrics import Metrics
from iceberg_compact_sql.service.configuration.config import service_config
from iceberg_compact_sql.service.configuration.read_yaml import parse_yaml
from iceberg_compact_sql.service.configuration.settings import spark_settings

FOLDER = Path(__file__).parents[3] / "sql_examples" / "deploy"
SECRETS = {"SERVICE_TOKEN": "a-token-of-a-secret", "S3_ACCESS_KEY": "a", "S3_SECRET_KEY": "b"}


def test_the_configuration_of_the_recipes_is_one() -> None:
    config = service_config(parse_yaml((FOLDER / "service.yaml").read_text(), SECRETS))
    assert spark_settings(config)["spark.sql.catalog.lake.s3.endpoint"] == "http://store:9000"


def test_the_containers_name_the_same_files_and_variables() -> None:
    compose = yaml.safe_load((FOLDER / "compose.yaml").read_text())
    service = compose["services"]["iceberg-compact"]
    assert set(service["environment"]) == set(SECRETS)
    assert set(service["depends_on"]) <= set(compose["services"])
    docker = (FOLDER / "Dockerfile").read_text()
    assert "USER service" in docker and "/health/live" in docker
    mounted = service["volumes"][0].split(":")[1]
    assert mounted in docker
    deployment, address, monitor = yaml.safe_load_all((FOLDER / "kubernetes.yaml").read_text())
    assert deployment["spec"]["replicas"] == 1 and deployment["spec"]["strategy"] == {"type": "Recreate"}
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert labels == deployment["spec"]["selector"]["matchLabels"] == address["spec"]["selector"]
    assert monitor["spec"]["endpoints"][0]["port"] == address["spec"]["ports"][0]["name"]


def test_the_dashboard_asks_for_metrics_that_exist() -> None:
    text = Metrics().text().decode()
    known = set(re.findall(r"^# TYPE (\S+)", text, re.MULTILINE))
    panels = json.loads((FOLDER / "grafana.json").read_text())["panels"]
    functions = {"sum", "by", "increase", "topk", "rate", "histogram_quantile", "status", "le", "h", "m"}
    for panel in panels:
        for target in panel["targets"]:
            names = set(re.findall(r"[a-z_]{2,}", target["expr"])) - functions
            assert names and {name.removesuffix("_bucket") for name in names} <= known, target["expr"]
