"""Delete files written by Iceberg's Java writers and committed by its RowDelta, driven through py4j."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema

if TYPE_CHECKING:
    from tests.support.java import Lake


def commit_equality_delete(
    lake: Lake,
    table: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[Any]],
    *,
    partition: str | None,
    spec_id: int | None,
    branch: str | None,
    file_format: str,
) -> str:
    """Write and commit one equality delete file; the path of it."""
    java = _jvm(lake)
    target = lake.java_table(table)
    spec = _spec(target, partition, spec_id)
    delete_schema = target.schema().select(_java_list(lake, columns))
    ids = _int_array(lake, [target.schema().findField(column).fieldId() for column in columns])
    factory = (
        _writer_factory(lake, target, file_format).equalityFieldIds(ids).equalityDeleteRowSchema(delete_schema).build()
    )
    writer = factory.newEqualityDeleteWriter(
        _output(lake, target, spec, partition, file_format), spec, _struct(java, spec, partition)
    )
    staging = _stage(lake, table, columns, rows)
    try:
        # Values cross as Records of a staged table: py4j would turn every small long into an Integer.
        records = java.org.apache.iceberg.data.IcebergGenerics.read(lake.java_table(staging)).build()
        iterator = records.iterator()
        while iterator.hasNext():
            writer.write(iterator.next())
        records.close()
    finally:
        lake.catalog.drop_table(staging)
    writer.close()
    return _commit(target, writer.toDeleteFile(), branch)


def commit_position_delete(
    lake: Lake, table: str, positions: Sequence[tuple[str, int]], *, branch: str | None, file_format: str
) -> str:
    """Write and commit one position delete file; the path of it."""
    java = _jvm(lake)
    target = lake.java_table(table)
    if lake.load(table).format_version > 2:
        raise ValueError("v3 tables take deletion vectors: DELETE FROM with 'write.delete.mode'='merge-on-read'")
    spec_id, struct = _place_of(target, {path for path, _ in positions}, branch)
    spec = target.specs()[spec_id]
    output_factory = _output_factory(lake, target, spec, file_format)
    output = output_factory.newOutputFile(spec, struct) if spec.isPartitioned() else output_factory.newOutputFile()
    writer = _writer_factory(lake, target, file_format).build().newPositionDeleteWriter(output, spec, struct)
    for path, position in sorted(positions):
        writer.write(java.org.apache.iceberg.deletes.PositionDelete.create().set(path, position))
    writer.close()
    return _commit(target, writer.toDeleteFile(), branch)


def _commit(target: Any, delete_file: Any, branch: str | None) -> str:
    delta = target.newRowDelta().addDeletes(delete_file)
    if branch:
        delta = delta.toBranch(branch)
    delta.commit()
    return str(delete_file.location())


def _stage(lake: Lake, table: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A throw-away table that holds the key rows, in the table's own types and in the order of its schema."""
    schema = lake.load(table).schema()
    chosen = [field for field in schema.fields if field.name in columns]
    if len(chosen) != len(columns):
        raise ValueError(f"equality deletes of this kit take top-level columns of {table}, not {columns}")
    keys = Schema(*(field.model_copy(update={"required": False}) for field in chosen))
    name = f"{table.rpartition('.')[0]}.keys_{secrets.token_hex(4)}"
    arrow_schema = schema_to_pyarrow(keys, include_field_ids=False)
    values = [dict(zip(columns, row, strict=True)) for row in rows]
    lake.catalog.create_table(name, keys).append(pa.Table.from_pylist(values, schema=arrow_schema))
    return name


def _place_of(target: Any, paths: set[str], branch: str | None) -> tuple[int, Any]:
    scan = target.newScan().useRef(branch) if branch else target.newScan()
    tasks = scan.planFiles()
    places: dict[str, tuple[int, Any]] = {}
    iterator = tasks.iterator()
    while iterator.hasNext():
        file = iterator.next().file()
        if file.location() in paths:
            places[file.location()] = (file.specId(), file.partition().copy())
    tasks.close()
    if missing := paths - places.keys():
        raise ValueError(f"not live data files of the table: {sorted(missing)}")
    found = list(places.values())
    if any((spec_id, str(struct)) != (found[0][0], str(found[0][1])) for spec_id, struct in found):
        raise ValueError("one delete file covers one partition: call once for each")
    return found[0]


def _spec(target: Any, partition: str | None, spec_id: int | None) -> Any:
    if spec_id is not None:
        return target.specs()[spec_id]
    if partition is not None or target.spec().isUnpartitioned():
        return target.spec()
    for spec in target.specs().values():
        if spec.isUnpartitioned():
            return spec
    raise ValueError("the table is partitioned: name the partition of the delete, as in partition='kind=a'")


def _struct(java: Any, spec: Any, partition: str | None) -> Any:
    """The partition tuple of a path, as Java parses it; None for an unpartitioned spec."""
    if partition is None:
        return None
    builder = java.org.apache.iceberg.DataFiles.builder(spec).withPath("file:/none.parquet").withFormat("parquet")
    return builder.withPartitionPath(partition).withFileSizeInBytes(1).withRecordCount(1).build().partition()


def _output(lake: Lake, target: Any, spec: Any, partition: str | None, file_format: str) -> Any:
    factory = _output_factory(lake, target, spec, file_format)
    struct = _struct(_jvm(lake), spec, partition)
    return factory.newOutputFile() if struct is None else factory.newOutputFile(spec, struct)


def _output_factory(lake: Lake, target: Any, spec: Any, file_format: str) -> Any:
    factory = _jvm(lake).org.apache.iceberg.io.OutputFileFactory
    operation = f"java-{secrets.token_hex(8)}"
    return (
        factory.builderFor(target, 0, 0)
        .defaultSpec(spec)
        .operationId(operation)
        .format(_format(lake, file_format))
        .build()
    )


def _writer_factory(lake: Lake, target: Any, file_format: str) -> Any:
    builder = _jvm(lake).org.apache.iceberg.data.GenericFileWriterFactory.Builder(target)
    return builder.deleteFileFormat(_format(lake, file_format)).dataFileFormat(_format(lake, file_format))


def _format(lake: Lake, name: str) -> Any:
    return _jvm(lake).org.apache.iceberg.FileFormat.fromString(name)


def _jvm(lake: Lake) -> Any:
    spark: Any = lake.spark
    return spark._jvm


def _java_list(lake: Lake, values: Sequence[str]) -> Any:
    listed = _jvm(lake).java.util.ArrayList()
    for value in values:
        listed.add(value)
    return listed


def _int_array(lake: Lake, values: Sequence[int]) -> Any:
    spark: Any = lake.spark
    array = spark.sparkContext._gateway.new_array(spark._jvm.int, len(values))
    for index, value in enumerate(values):
        array[index] = value
    return array
