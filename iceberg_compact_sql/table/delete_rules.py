"""When a delete applies to a data file: the rules of the specification's section "Scan Planning".

The inventory, the conflict check, the search for obsolete deletes and the merge of position deletes all use these.
Paths are compared by their exact text (`storage.same_file`), partitions by `table.partition_keys`.
"""

from __future__ import annotations

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.transforms import VoidTransform


def applies_at(*, equality: bool, delete_sequence: int, data_sequence: int) -> bool:
    """Whether a delete of one sequence number can remove rows of a data file of another.

    A position delete or deletion vector removes rows that its own commit wrote; an equality delete only older rows.

    >>> applies_at(equality=False, delete_sequence=5, data_sequence=5)
    True
    >>> applies_at(equality=True, delete_sequence=5, data_sequence=5)
    False
    """
    return delete_sequence >= first_sequence(equality=equality, data_sequence=data_sequence)


def first_sequence(*, equality: bool, data_sequence: int) -> int:
    """Return the lowest sequence number of a delete that can apply to a data file."""
    return data_sequence + 1 if equality else data_sequence


def is_global(spec: PartitionSpec) -> bool:
    """Whether equality deletes of this spec apply to the files of every spec: it has no fields, or only void ones."""
    return all(isinstance(field.transform, VoidTransform) for field in spec.fields)
