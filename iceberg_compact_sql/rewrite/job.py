"""Builds the job of a run: what every task needs from the table."""

from __future__ import annotations

from collections.abc import Mapping

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table

from iceberg_compact_sql.errors import InvalidArgumentError, NotFoundError
from iceberg_compact_sql.format_versions import rules_of
from iceberg_compact_sql.plan.model import CompactionOptions
from iceberg_compact_sql.rewrite.scan.lineage import with_lineage
from iceberg_compact_sql.rewrite.scan.stored_columns import stored_schema
from iceberg_compact_sql.rewrite.task import RewriteJob
from iceberg_compact_sql.rewrite.write.settings import CODEC, LEVEL, writer_settings
from iceberg_compact_sql.storage.io_properties import io_properties
from iceberg_compact_sql.storage.request_limit import request_limit
from iceberg_compact_sql.table.properties import NAME_MAPPING, PYTHON_LOCATION_PROVIDER


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
    """Return the run's job: schema, specs and write settings of the table, and only properties that its storage needs.

    In format version 3 the schema has the columns of row lineage.

    `overrides` are `write.*` properties of this run, and `compression` for the codec. An invalid setting raises
    InvalidArgumentError here, before anything is read.
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
    schema = stored_schema(schema)
    if rules_of(metadata.format_version).row_lineage:
        schema = with_lineage(schema)
    return RewriteJob(
        run_id=run_id,
        table_location=metadata.location,
        schema_json=schema.model_dump_json(),
        specs_json=tuple(specs[spec_id].model_dump_json() for spec_id in sorted(specs)),
        output_spec_id=output_spec_id,
        name_mapping_json=NAME_MAPPING.of(metadata.properties),
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
        order=options.order,
        compression_factor=options.compression_factor,
        requests=request_limit().requests,
    )


def effective_properties(table_properties: Mapping[str, str], overrides: Mapping[str, str]) -> dict[str, str]:
    """Return the table's write properties, overridden by those of this run; a new codec drops the table's level."""
    properties = {name: value for name, value in table_properties.items() if name.startswith("write.")}
    codec = overrides.get("compression", overrides.get(CODEC))
    if codec is not None and codec.lower() != properties.get(CODEC, "zstd").lower():
        properties.pop(LEVEL, None)
    for name, value in overrides.items():
        if name == PYTHON_LOCATION_PROVIDER.name:
            message = f"'{name}' names a Python class, which a call must not load"
            hint = "Set it as a property of the table."
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
    """Return the schema that outputs are written in: the table's, and the columns of row lineage in version 3."""
    return Schema.model_validate_json(job.schema_json)


def job_spec(job: RewriteJob, spec_id: int) -> PartitionSpec:
    """Return one of the table's partition specs."""
    specs = (PartitionSpec.model_validate_json(text) for text in job.specs_json)
    return next(spec for spec in specs if spec.spec_id == spec_id)
