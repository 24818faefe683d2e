"""Which row groups of a task are copied as they are, which are spliced, and which are decoded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from iceberg_compact_sql.parquet.footer import ParquetFooter, read_footer
from iceberg_compact_sql.parquet.thrift import I64
from iceberg_compact_sql.rewrite.copy.identity import holds_identity_values
from iceberg_compact_sql.rewrite.copy.lineage_chunks import BYTES_PER_VALUE, lineage_memory_bytes
from iceberg_compact_sql.rewrite.live_rows import InputReader, SliceRowGroup
from iceberg_compact_sql.rewrite.scan.arrays import null_array
from iceberg_compact_sql.rewrite.task import InputSlice, RewriteJob, RewriteTask
from iceberg_compact_sql.rewrite.write.settings import WriterSettings, encode

# Column chunks whose parsed metadata is held in memory: about 3 KB each.
_MAX_CHUNKS = 40_000
# Small files on remote stores that stay in memory between planning and reading; others are read twice.
_MAX_HELD_BYTES = 128 * 1024**2


@dataclass(frozen=True, slots=True)
class CopyPlan:
    """The row groups to copy or to splice, by input and index, and the settings under which others are encoded."""

    kept: Mapping[InputSlice, frozenset[int]]
    settings: WriterSettings
    copy_min_row_group_bytes: int

    def copies(self, reader: InputReader, row_group: SliceRowGroup) -> bool:
        return self._keeps(reader, row_group) and row_group.compressed_bytes >= self.copy_min_row_group_bytes

    def splices(self, reader: InputReader, row_group: SliceRowGroup) -> bool:
        return self._keeps(reader, row_group) and row_group.compressed_bytes < self.copy_min_row_group_bytes

    def _keeps(self, reader: InputReader, row_group: SliceRowGroup) -> bool:
        return row_group.index in self.kept.get(reader.slice, frozenset())


def may_copy(job: RewriteJob, task: RewriteTask) -> bool:
    """Whether row groups of a task may be copied or spliced; rows that are split by partition are decoded."""
    return job.copy == "auto" and task.partition is not None


def open_candidates(readers: Iterator[InputReader]) -> list[InputReader]:
    """Return the inputs whose row groups may be copied or spliced, from the front of `readers`.

    Memory is bounded: files are closed until they are read again, except for small ones that are in memory. Parsed
    footers stay, so that their number is limited. Later inputs are left in `readers` and decoded.
    """
    candidates: list[InputReader] = []
    chunks = held_bytes = 0
    for reader in readers:
        candidates.append(reader)
        in_memory = isinstance(reader.file, pa.BufferReader)
        if in_memory and held_bytes + reader.slice.size_bytes <= _MAX_HELD_BYTES:
            held_bytes += reader.slice.size_bytes
        else:
            reader.rest()
        if reader.footer is not None:
            chunks += len(reader.footer.leaves) * max(1, len(reader.footer.row_groups))
        if chunks >= _MAX_CHUNKS:
            break
    return candidates


def plan_copies(
    job: RewriteJob, readers: Sequence[InputReader], others_bytes: int, settings: WriterSettings, schema: pa.Schema
) -> CopyPlan:
    """Choose the row groups to copy or to splice; those of another schema need an output that is large enough.

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
            if reader.base is not None and _fits(job, reader, row_group, settings):
                chosen.add(row_group.index)
                bytes_of[reader.base.signature] += row_group.compressed_bytes
            else:
                decoded_bytes += row_group.compressed_bytes
                decoded.add(reader.base)
        if reader.base is not None and chosen:
            candidates[reader.slice] = (reader.base.signature, frozenset(chosen))
    if not candidates:
        return CopyPlan({}, settings, job.copy_min_row_group_bytes)
    required = replace(settings, required_columns=_never_null(decoded, bytes_of, schema))
    copied, chosen_settings = _signatures_to_copy(job, bytes_of, decoded_bytes, required, schema)
    if required != settings and copied != set(bytes_of):
        # Candidates that are decoded now may hold nulls.
        copied, chosen_settings = _signatures_to_copy(job, bytes_of, decoded_bytes, settings, schema)
    settings = chosen_settings
    return CopyPlan(
        {input_slice: chosen for input_slice, (signature, chosen) in candidates.items() if signature in copied},
        settings,
        job.copy_min_row_group_bytes,
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


def _fits(job: RewriteJob, reader: InputReader, row_group: SliceRowGroup, settings: WriterSettings) -> bool:
    footer = reader.footer
    if footer is None or not reader.fits or row_group.has_deletes or row_group.compressed_bytes > job.roll_bytes:
        return False
    if reader.has_lineage and row_group.rows * BYTES_PER_VALUE > lineage_memory_bytes(job):
        return False
    if not holds_identity_values(footer, row_group.index, reader.table_schema, reader.identity):
        return False
    if row_group.compressed_bytes < job.copy_min_row_group_bytes:
        # Codecs and bloom filters are looked at for each column when it is spliced.
        return True
    if footer.row_groups[row_group.index].codecs != {settings.codec}:
        return False
    wanted = {bloom.column_path for bloom in settings.blooms}
    return not wanted or wanted <= _columns_with_bloom(footer, row_group.index)


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
