"""Which row groups of a task are copied without decoding."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from iceberg_compact_sql.parquet.footer import ParquetFooter, read_footer
from iceberg_compact_sql.parquet.thrift import I64
from iceberg_compact_sql.rewrite.copy.identity import holds_identity_values
from iceberg_compact_sql.rewrite.live_rows import InputReader, SliceRowGroup
from iceberg_compact_sql.rewrite.scan.arrays import null_array
from iceberg_compact_sql.rewrite.task import InputSlice, RewriteJob, RewriteTask, slice_bytes
from iceberg_compact_sql.rewrite.write.settings import WriterSettings, encode


@dataclass(frozen=True, slots=True)
class CopyPlan:
    """The row groups to copy, by input and index, and the settings under which all others are encoded."""

    copied: Mapping[InputSlice, frozenset[int]]
    settings: WriterSettings

    def copies(self, reader: InputReader, row_group: SliceRowGroup) -> bool:
        return row_group.index in self.copied.get(reader.slice, frozenset())


def may_copy(job: RewriteJob, task: RewriteTask, input_slice: InputSlice) -> bool:
    """Whether an input is large enough to hold a row group that is worth copying."""
    return (
        job.copy == "auto" and task.partition is not None and slice_bytes(input_slice) >= job.copy_min_row_group_bytes
    )


def plan_copies(
    job: RewriteJob, readers: Sequence[InputReader], others_bytes: int, settings: WriterSettings, schema: pa.Schema
) -> CopyPlan:
    """Choose the row groups to copy. Row groups of another schema need another output, which must be large enough.

    `others_bytes` is what the task decodes besides these inputs. Row groups whose output would be below the minimum
    size are decoded instead, and so are the row groups that they could not share a file with.
    """
    candidates: dict[InputSlice, tuple[Hashable, frozenset[int]]] = {}
    bytes_of: Counter[Hashable] = Counter()
    decoded_bytes = others_bytes
    decoded: set[ParquetFooter | None] = {None} if others_bytes else set()
    for reader in readers:
        chosen = set()
        for row_group in reader.row_groups:
            if reader.footer is not None and _fits(job, reader, reader.footer, row_group, settings):
                chosen.add(row_group.index)
                bytes_of[reader.footer.signature] += row_group.compressed_bytes
            else:
                decoded_bytes += row_group.compressed_bytes
                decoded.add(reader.footer)
        if reader.footer is not None and chosen:
            candidates[reader.slice] = (reader.footer.signature, frozenset(chosen))
    if not candidates:
        return CopyPlan({}, settings)
    required = replace(settings, required_columns=_never_null(decoded, bytes_of, schema))
    copied, chosen_settings = _signatures_to_copy(job, bytes_of, decoded_bytes, required, schema)
    if required != settings and copied != set(bytes_of):
        # Candidates that are decoded now may hold nulls.
        copied, chosen_settings = _signatures_to_copy(job, bytes_of, decoded_bytes, settings, schema)
    settings = chosen_settings
    return CopyPlan(
        {input_slice: chosen for input_slice, (signature, chosen) in candidates.items() if signature in copied},
        settings,
    )


def _never_null(
    decoded: Collection[ParquetFooter | None], bytes_of: Mapping[Hashable, int], schema: pa.Schema
) -> frozenset[str]:
    """Return columns that are required in all decoded row groups, although the table allows nulls.

    Spark writes a column as required when the inserted expression cannot be null. Row groups of such files can share a
    file only if the decoded ones are written in the same way. That is safe when all of them have one copied schema.
    """
    signatures = {footer.signature if footer is not None else None for footer in decoded}
    if len(signatures) != 1 or not signatures <= set(bytes_of):
        return frozenset()
    footer = next(footer for footer in decoded if footer is not None)
    nullable = {column.name for column in schema if column.nullable and not pa.types.is_nested(column.type)}
    return frozenset(leaf.name for leaf in footer.leaves if not leaf.optional and leaf.name in nullable)


def _fits(
    job: RewriteJob, reader: InputReader, footer: ParquetFooter, row_group: SliceRowGroup, settings: WriterSettings
) -> bool:
    if (
        not reader.fits
        or row_group.has_deletes
        or not job.copy_min_row_group_bytes <= row_group.compressed_bytes <= job.roll_bytes
    ):
        return False
    if footer.row_groups[row_group.index].codecs != {settings.codec}:
        return False
    wanted = {bloom.column_path for bloom in settings.blooms}
    if wanted and not wanted <= _columns_with_bloom(footer, row_group.index):
        return False
    return holds_identity_values(footer, row_group.index, reader.table_schema, reader.identity)


def _columns_with_bloom(footer: ParquetFooter, index: int) -> set[str]:
    columns = zip(footer.leaves, footer.column_trees(index), strict=True)
    return {leaf.name for leaf, (_, meta) in columns if meta.get(14, I64) is not None}


def _signatures_to_copy(
    job: RewriteJob,
    bytes_of: Mapping[Hashable, int],
    decoded_bytes: int,
    settings: WriterSettings,
    schema: pa.Schema,
) -> tuple[set[Hashable], WriterSettings]:
    """Return the signatures to copy, and settings with which encoded rows share one of them if possible."""
    if len(bytes_of) == 1 and decoded_bytes == 0:
        return set(bytes_of), settings
    shared, settings = _shared_signature(bytes_of, settings, schema)
    copied = {
        signature
        for signature, size_bytes in bytes_of.items()
        if signature == shared or size_bytes >= job.min_file_bytes
    }
    encoded_bytes = decoded_bytes + sum(size for signature, size in bytes_of.items() if signature not in copied)
    shared_bytes = encoded_bytes + (bytes_of[shared] if shared is not None else 0)
    nothing_separate = len(copied - {shared}) == 0
    if shared_bytes == 0 or shared_bytes >= job.min_file_bytes or nothing_separate:
        return copied, settings
    return set(), settings


def _shared_signature(
    bytes_of: Mapping[Hashable, int], settings: WriterSettings, schema: pa.Schema
) -> tuple[Hashable | None, WriterSettings]:
    """Return the signature that encoded rows can share, trying each way in which writers store a decimal."""
    candidates: list[tuple[int, Hashable, WriterSettings]] = []
    for variant in (settings, replace(settings, decimal_as_integer=not settings.decimal_as_integer)):
        signature = written_signature(schema, variant)
        if signature in bytes_of:
            candidates.append((bytes_of[signature], signature, variant))
    if not candidates:
        return None, settings
    _, signature, variant = max(candidates, key=lambda entry: entry[0])
    return signature, variant


def written_signature(schema: pa.Schema, settings: WriterSettings) -> Hashable:
    """Return the signature of all row groups that are encoded with these settings."""
    # `schema.empty_table()` fails for columns that contain a uuid.
    empty = pa.Table.from_arrays([null_array(field.type, 0) for field in schema], schema=schema)
    buffer = encode(empty, settings, ())
    return read_footer(pa.BufferReader(buffer), buffer.size).signature
