"""What every task of a run needs to know, taken from a table once."""

from __future__ import annotations

from collections.abc import Mapping

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table

from iceberg_compact_sql.errors import InvalidArgumentError, NotFoundError
from iceberg_compact_sql.plan.model import CompactionOptions
from iceberg_compact_sql.rewrite.task import RewriteJob
from iceberg_compact_sql.rewrite.write.settings import CODEC, LEVEL, writer_settings
from iceberg_compact_sql.storage.io_properties import io_properties

_NAME_MAPPING = "schema.name-mapping.default"
_PROVIDER = "write.py-location-provider.impl"


def build_job(
    table: Table,
    *,
    options: CompactionOptions,
    overrides: Mapping[str, str],
    verify: str,
    run_id: str,
    output_spec_id: int,
    cores: int,
) -> RewriteJob:
    """The run's job: the table's schema, specs and write settings, and only those properties that its storage needs.

    `overrides` are `write.*` properties, and `compression` for the codec, of this run alone; a setting that makes no
    sense raises InvalidArgumentError here, before anything is read.
    """
    metadata = table.metadata
    specs = table.specs()
    if output_spec_id not in specs:
        raise NotFoundError(
            f"the table has no partition spec {output_spec_id}",
            argument="output-spec-id",
            value=output_spec_id,
            hint=f"Its specs: {', '.join(str(spec_id) for spec_id in sorted(specs))}.",
        )
    schema = table.schema()
    properties = effective_properties(metadata.properties, overrides)
    writer_settings(properties, schema)
    return RewriteJob(
        run_id=run_id,
        table_location=metadata.location,
        schema_json=schema.model_dump_json(),
        specs_json=tuple(specs[spec_id].model_dump_json() for spec_id in sorted(specs)),
        output_spec_id=output_spec_id,
        name_mapping_json=metadata.properties.get(_NAME_MAPPING),
        properties=properties,
        io_properties=io_properties(table.io.properties),
        format_version=metadata.format_version,
        target_bytes=options.target_bytes,
        roll_bytes=options.roll_bytes,
        copy=options.copy,
        copy_min_row_group_bytes=options.copy_min_row_group_bytes,
        verify=verify,
        threads=max(1, cores),
        min_file_bytes=options.min_file_bytes,
        max_file_bytes=options.max_file_bytes,
    )


def effective_properties(table_properties: Mapping[str, str], overrides: Mapping[str, str]) -> dict[str, str]:
    """The table's write properties with this run's own on top; a new codec drops the table's level."""
    properties = {name: value for name, value in table_properties.items() if name.startswith("write.")}
    codec = overrides.get("compression", overrides.get(CODEC))
    if codec is not None and codec.lower() != properties.get(CODEC, "zstd").lower():
        properties.pop(LEVEL, None)
    for name, value in overrides.items():
        if name == _PROVIDER:
            message = f"'{name}' names Python code, and a call loads none"
            hint = "Make it a property of the table."
            raise InvalidArgumentError(message, argument="options", value=name, hint=hint)
        if name == "compression":
            properties[CODEC] = value
        elif name.startswith("write."):
            properties[name] = value
        else:
            raise InvalidArgumentError(
                f"'{name}' is not a write setting", argument="options", value=name, hint="Expected write.*."
            )
    return properties


def job_schema(job: RewriteJob) -> Schema:
    """The schema that outputs are written in."""
    return Schema.model_validate_json(job.schema_json)


def job_spec(job: RewriteJob, spec_id: int) -> PartitionSpec:
    """One of the table's partition specs."""
    specs = (PartitionSpec.model_validate_json(text) for text in job.specs_json)
    return next(spec for spec in specs if spec.spec_id == spec_id)
