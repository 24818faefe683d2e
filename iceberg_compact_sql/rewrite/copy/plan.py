"""Which row groups of a task are copied as they are, and into which of its outputs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from iceberg_compact_sql.parquet.footer import ParquetFooter, read_footer
from iceberg_compact_sql.parquet.thrift import I64
from iceberg_compact_sql.rewrite.live_rows import InputReader, RowGroupPart
from iceberg_compact_sql.rewrite.scan.arrays import null_array
from iceberg_compact_sql.rewrite.task import InputSlice, RewriteJob, RewriteTask, slice_bytes
from iceberg_compact_sql.rewrite.write.settings import WriterSettings, encode


@dataclass(frozen=True, slots=True)
class CopyPlan:
    """The row groups to copy, by input and index, and the settings under which all others are encoded."""

    copied: Mapping[InputSlice, frozenset[int]]
    settings: WriterSettings

    def copies(self, reader: InputReader, part: RowGroupPart) -> bool:
        return part.index in self.copied.get(reader.slice, frozenset())


def may_copy(job: RewriteJob, task: RewriteTask, piece: InputSlice) -> bool:
    """Whether an input can hold a row group that is worth copying, as far as its size tells."""
    return job.copy == "auto" and task.partition is not None and slice_bytes(piece) >= job.copy_min_row_group_bytes


def plan_copies(
    job: RewriteJob, readers: Sequence[InputReader], others_bytes: int, settings: WriterSettings, schema: pa.Schema
) -> CopyPlan:
    """Copy what fits; row groups of a schema of their own get an output of their own only if that is large enough.

    `others_bytes` is what the task decodes besides these inputs. Row groups that would leave an output below the
    minimum are decoded instead, together with everything that they would have to be kept apart from.
    """
    candidates: dict[InputSlice, tuple[Hashable, frozenset[int]]] = {}
    bytes_of: Counter[Hashable] = Counter()
    decoded_bytes = others_bytes
    decoded: set[ParquetFooter | None] = {None} if others_bytes else set()
    for reader in readers:
        chosen = set()
        for part in reader.parts:
            if reader.footer is not None and _fits(job, reader, reader.footer, part, settings):
                chosen.add(part.index)
                bytes_of[reader.footer.signature] += part.compressed_bytes
            else:
                decoded_bytes += part.compressed_bytes
                decoded.add(reader.footer)
        if reader.footer is not None and chosen:
            candidates[reader.slice] = (reader.footer.signature, frozenset(chosen))
    if not candidates:
        return CopyPlan({}, settings)
    required = replace(settings, required_columns=_never_null(decoded, bytes_of, schema))
    kept, chosen_settings = _kept_apart(job, bytes_of, decoded_bytes, required, schema)
    if required != settings and kept != set(bytes_of):
        # Candidates that are decoded after all may hold nulls.
        kept, chosen_settings = _kept_apart(job, bytes_of, decoded_bytes, settings, schema)
    settings = chosen_settings
    return CopyPlan({piece: chosen for piece, (sign, chosen) in candidates.items() if sign in kept}, settings)


def _never_null(
    decoded: Collection[ParquetFooter | None], bytes_of: Mapping[Hashable, int], schema: pa.Schema
) -> frozenset[str]:
    """Columns that all decoded row groups hold as required, where the table lets them be null.

    Spark writes a column so when the inserted expression cannot be null. Row groups of such a file fit together again
    only if the decoded ones are written in the same way; where all of them are of one copied schema, that is safe.
    """
    signatures = {footer.signature if footer is not None else None for footer in decoded}
    if len(signatures) != 1 or not signatures <= set(bytes_of):
        return frozenset()
    footer = next(footer for footer in decoded if footer is not None)
    nullable = {column.name for column in schema if column.nullable and not pa.types.is_nested(column.type)}
    return frozenset(leaf.name for leaf in footer.leaves if not leaf.optional and leaf.name in nullable)


def _fits(
    job: RewriteJob, reader: InputReader, footer: ParquetFooter, part: RowGroupPart, settings: WriterSettings
) -> bool:
    if not reader.fits or part.touched or not job.copy_min_row_group_bytes <= part.compressed_bytes <= job.roll_bytes:
        return False
    if footer.row_groups[part.index].codecs != {settings.codec}:
        return False
    wanted = {bloom.column_path for bloom in settings.blooms}
    return not wanted or wanted <= _columns_with_bloom(footer, part.index)


def _columns_with_bloom(footer: ParquetFooter, index: int) -> set[str]:
    columns = zip(footer.leaves, footer.column_trees(index), strict=True)
    return {leaf.name for leaf, (_, meta) in columns if meta.get(14, I64) is not None}


def _kept_apart(
    job: RewriteJob,
    bytes_of: Mapping[Hashable, int],
    decoded_bytes: int,
    settings: WriterSettings,
    schema: pa.Schema,
) -> tuple[set[Hashable], WriterSettings]:
    """The signatures that are copied, and the settings that make encoded rows join one of them where possible."""
    if len(bytes_of) == 1 and decoded_bytes == 0:
        return set(bytes_of), settings
    home, settings = _home(bytes_of, settings, schema)
    kept = {sign for sign, size_bytes in bytes_of.items() if sign == home or size_bytes >= job.min_file_bytes}
    encoded_bytes = decoded_bytes + sum(size for sign, size in bytes_of.items() if sign not in kept)
    shared_bytes = encoded_bytes + (bytes_of[home] if home is not None else 0)
    alone = len(kept - {home}) == 0
    if shared_bytes == 0 or shared_bytes >= job.min_file_bytes or alone:
        return kept, settings
    return set(), settings


def _home(
    bytes_of: Mapping[Hashable, int], settings: WriterSettings, schema: pa.Schema
) -> tuple[Hashable | None, WriterSettings]:
    """The copied schema that encoded rows can join, trying the ways in which writers store the same type."""
    found: list[tuple[int, Hashable, WriterSettings]] = []
    for variant in (settings, replace(settings, decimal_as_integer=not settings.decimal_as_integer)):
        sign = written_signature(schema, variant)
        if sign in bytes_of:
            found.append((bytes_of[sign], sign, variant))
    if not found:
        return None, settings
    _, sign, variant = max(found, key=lambda entry: entry[0])
    return sign, variant


def written_signature(schema: pa.Schema, settings: WriterSettings) -> Hashable:
    """What all row groups encoded under these settings share."""
    # `schema.empty_table()` cannot make columns with a uuid inside.
    empty = pa.Table.from_arrays([null_array(field.type, 0) for field in schema], schema=schema)
    buffer = encode(empty, settings, ())
    return read_footer(pa.BufferReader(buffer), buffer.size).signature
