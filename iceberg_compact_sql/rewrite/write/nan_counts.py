"""NaN counts of an output file whose row groups are partly copied or spliced without being decoded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from iceberg_compact_sql.parquet.footer import ParquetFooter
from iceberg_compact_sql.parquet.schema import LeafColumn
from iceberg_compact_sql.parquet.thrift import STRUCT
from iceberg_compact_sql.rewrite.live_rows import InputReader
from iceberg_compact_sql.rewrite.write.metrics import is_float, is_nan_free


@dataclass(frozen=True, slots=True)
class StoredRowGroup:
    """A row group of an input whose pages are not decoded; `file_counts` are the NaN counts of its manifest entry."""

    path: str
    footer: ParquetFooter
    index: int
    file_counts: Mapping[int, int]

    @classmethod
    def of(cls, reader: InputReader, index: int) -> StoredRowGroup:
        """Return a row group of an input whose footer can be parsed."""
        assert reader.footer is not None
        return cls(reader.slice.path, reader.footer, index, dict(reader.slice.nan_counts))

    @property
    def is_whole_file(self) -> bool:
        """Whether all rows of the file are in this row group."""
        return _row_groups_with_rows(self.footer) <= {self.index}

    def zero_columns(self, leaves: Sequence[LeafColumn]) -> set[int]:
        """Return the field ids of floats that hold no NaN here: by the file's count or by the statistics."""
        chunks = self.footer.row_group_tree(self.index).elements(1, STRUCT) or ()
        return {
            leaf.field_id
            for leaf in leaves
            if leaf.field_id is not None
            and (
                self.file_counts.get(leaf.field_id) == 0
                or is_nan_free(self.footer, leaf, chunks[leaf.index].need(3, STRUCT))
            )
        }

    def known_counts(self, leaves: Sequence[LeafColumn]) -> dict[int, int]:
        """Return the NaN counts of this row group that are known, by field id.

        The manifest counts the NaN of a whole file: a positive count is known only of a file with one row group.
        """
        floats = float_columns(leaves)
        counts = dict.fromkeys(self.zero_columns(floats), 0)
        if self.is_whole_file:
            ids = {leaf.field_id for leaf in floats} - set(counts)
            counts |= {column: count for column, count in self.file_counts.items() if column in ids}
        return counts


def float_columns(leaves: Sequence[LeafColumn]) -> list[LeafColumn]:
    """Return the float columns that are not inside lists or maps: these have no NaN count."""
    return [leaf for leaf in leaves if is_float(leaf) and not leaf.repeated]


@dataclass(slots=True)
class _CopiedFile:
    """The row groups of one input that are copied to an output, and positive counts of all its row groups."""

    footer: ParquetFooter
    row_groups: set[int] = field(default_factory=set)
    counts: dict[int, int] = field(default_factory=dict)

    @property
    def is_complete(self) -> bool:
        return _row_groups_with_rows(self.footer) <= self.row_groups


class NanCounts:
    """Adds up the NaN counts of an output file; a column has one if it is known of all its row groups."""

    def __init__(self) -> None:
        # None before the first row group.
        self._known: dict[int, int] | None = None
        self._files: dict[str, _CopiedFile] = {}

    def add(self, counts: Mapping[int, int]) -> None:
        """Add a row group whose known counts are these."""
        known = self._known
        self._known = (
            dict(counts)
            if known is None
            else {column: count + counts[column] for column, count in known.items() if column in counts}
        )

    def add_copied(self, row_group: StoredRowGroup) -> None:
        """Add a copied row group; a positive count of its file holds if all row groups of the file are copied here."""
        floats = float_columns(row_group.footer.leaves)
        counts = dict.fromkeys(row_group.zero_columns(floats), 0)
        copied = self._files.setdefault(row_group.path, _CopiedFile(row_group.footer))
        copied.row_groups.add(row_group.index)
        for leaf in floats:
            count = row_group.file_counts.get(leaf.field_id) if leaf.field_id is not None else None
            if leaf.field_id is not None and count is not None and leaf.field_id not in counts:
                copied.counts[leaf.field_id] = count
                counts[leaf.field_id] = 0
        self.add(counts)

    def totals(self) -> dict[int, int]:
        """Return the counts that are known of the whole output, by field id."""
        totals = dict(self._known or {})
        for copied in self._files.values():
            for column, count in copied.counts.items():
                if column in totals and copied.is_complete:
                    totals[column] += count
                else:
                    totals.pop(column, None)
        return totals


def _row_groups_with_rows(footer: ParquetFooter) -> set[int]:
    return {row_group.index for row_group in footer.row_groups if row_group.rows}
