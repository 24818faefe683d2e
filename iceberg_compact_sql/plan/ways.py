"""How the row groups of a group will be written, as far as manifests show it: copied, spliced or encoded."""

from __future__ import annotations

from iceberg_compact_sql.plan.model import CompactionPlan, FileGroup


def ways_text(plan: CompactionPlan, group: FileGroup) -> str:
    """Return how many row groups are copied, spliced and encoded.

    A footer can still change that: a column whose pages are small or need their dictionary is encoded.

    >>> _text({"copied": 2, "spliced": 0, "encoded": 1})
    '2 row groups copied, 1 encoded'
    """
    row_groups = sum(max(1, len(file.split_offsets)) for file in group.files)
    deleted = sum(
        max(1, len(file.split_offsets)) for file, deletes in zip(group.files, group.deletes, strict=True) if deletes
    )
    if plan.options.copy == "never" or plan.options.strategy != "binpack" or group.partition is None:
        return _text({"encoded": row_groups})
    kept = row_groups - deleted
    copied = min(group.copied_row_groups, kept)
    return _text({"copied": copied, "spliced": kept - copied, "encoded": deleted})


def _text(counts: dict[str, int]) -> str:
    shown = [f"{count} {way}" for way, count in counts.items() if count]
    first, *others = shown or ["0 encoded"]
    count, way = first.split(" ")
    noun = "row group" if count == "1" else "row groups"
    return ", ".join([f"{count} {noun} {way}", *others])
