"""Options: Iceberg's defaults and names, and an error for every rule between them."""

from __future__ import annotations

from typing import Any

import pytest

from iceberg_compact_sql.errors import InvalidArgumentError
from iceberg_compact_sql.plan.model import CompactionOptions
from iceberg_compact_sql.plan.options import resolve_options
from tests.support.planning import options_for

MB = 1024**2


def test_defaults_are_icebergs() -> None:
    assert resolve_options() == CompactionOptions(
        target_bytes=512 * MB,
        min_file_bytes=384 * MB,
        max_file_bytes=int(512 * MB * 1.8),
        min_input_files=5,
        delete_file_threshold=None,
        delete_ratio_threshold=0.3,
        max_group_bytes=100 * 1024 * MB,
    )
    assert options_for() == resolve_options()
    assert resolve_options(properties={"write.target-file-size-bytes": "1000"}).target_bytes == 1000
    assert resolve_options(properties={"write.target-file-size-bytes": "1000"}, target=64 * MB).target_bytes == 64 * MB


def test_icebergs_option_names_are_the_arguments() -> None:
    options = {
        "target-file-size-bytes": "1000",
        "min-file-size-bytes": "500",
        "max-file-size-bytes": "2000",
        "min-input-files": "2",
        "delete-file-threshold": "3",
        "delete-ratio-threshold": "0.5",
        "max-file-group-size-bytes": "9000",
        "max-file-group-input-files": "7",
        "max-files-to-rewrite": "11",
        "rewrite-all": "true",
        "rewrite-job-order": "bytes-desc",
        "output-spec-id": "1",
    }
    assert options_for(options=options, spec_ids={0, 1}) == CompactionOptions(
        target_bytes=1000,
        min_file_bytes=500,
        max_file_bytes=2000,
        min_input_files=2,
        delete_file_threshold=3,
        delete_ratio_threshold=0.5,
        max_group_bytes=9000,
        max_group_files=7,
        max_files=11,
        rewrite_all=True,
        job_order="bytes-desc",
        output_spec_id=1,
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"min_file_size": 20 * MB, "target": 10 * MB}, "min_file_size 20 MB must be below target 10 MB"),
        ({"min_file_size": 10 * MB, "target": 10 * MB}, "min_file_size 10 MB must be below target 10 MB"),
        ({"max_file_size": 5 * MB, "target": 10 * MB}, "max_file_size 5 MB must be above target 10 MB"),
        ({"output_spec_id": 7, "spec_ids": {0, 1}}, "output_spec_id 7 is not a spec of the table, which has: 0, 1"),
        (
            {"properties": {"write.target-file-size-bytes": "big"}},
            "table property write.target-file-size-bytes 'big' is not a size such as",
        ),
        (
            {"properties": {"write.target-file-size-bytes": "0"}},
            "table property write.target-file-size-bytes '0' must be above 0",
        ),
    ],
)
def test_errors_name_argument_value_and_rule(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        resolve_options(**arguments)
    assert str(caught.value).startswith(message)
    assert caught.value.argument is not None
