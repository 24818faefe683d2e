"""Selects the files and groups to rewrite, and gives the reason as a sentence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from iceberg_compact_sql.plan.model import CompactionOptions
from iceberg_compact_sql.plan.packing import expected_outputs
from iceberg_compact_sql.table.inventory import TableInventory
from iceberg_compact_sql.table.model import DeleteKind, LiveDelete, LiveFile
from iceberg_compact_sql.units import format_bytes


@dataclass(frozen=True, slots=True)
class ClassifiedFiles:
    """The files of one partition as candidates, healthy files and refused files; each file is in exactly one list."""

    candidates: tuple[LiveFile, ...]
    healthy: tuple[LiveFile, ...]
    # Files that are never rewritten, with the reason.
    refused: tuple[tuple[str, tuple[LiveFile, ...]], ...] = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a group is rewritten, into how many files, and why."""

    rewrite: bool
    reason: str
    expected_files: int


def classify_files(inventory: TableInventory, files: Sequence[LiveFile], options: CompactionOptions) -> ClassifiedFiles:
    """Select candidates by Iceberg's rule: too small, too large, or too many deletes; with `rewrite_all`, every file.

    Files that this version cannot rewrite are never candidates: other formats than Parquet, encrypted files, and
    oversized files of a single row, which cannot be split.
    """
    candidates: list[LiveFile] = []
    healthy: list[LiveFile] = []
    refused: dict[str, list[LiveFile]] = {}
    smallest, largest, everything = options.min_file_bytes, options.max_file_bytes, options.rewrite_all
    with_deletes = inventory.has_deletes
    for file in files:
        if file.file_format != "PARQUET" or file.encrypted:
            refused.setdefault(_unsupported(file), []).append(file)
        elif (
            file.size_bytes > largest
            and file.rows == 1
            and not everything
            and not has_effective_deletes(inventory, file)
        ):
            refused.setdefault("of a single row: cannot be split", []).append(file)
        elif (
            everything
            or file.size_bytes < smallest
            or file.size_bytes > largest
            or (with_deletes and has_too_many_deletes(inventory, file, options))
        ):
            candidates.append(file)
        else:
            healthy.append(file)
    return ClassifiedFiles(
        tuple(candidates),
        tuple(healthy),
        tuple((f"{files_text(len(members))} {why}", tuple(members)) for why, members in refused.items()),
    )


def judge_group(
    inventory: TableInventory, files: Sequence[LiveFile], options: CompactionOptions, *, accepted: bool = False
) -> Verdict:
    """Decide whether a packed group of candidates is rewritten.

    First Iceberg's rule: enough files, enough content, too much content, or deletes. Then our own rule: a rewrite must
    gain something. Fewer files, a file to split or a delete to apply is a gain. Without a gain the group is skipped, so
    that a second run has nothing to do. Files that one of our compactions wrote for the same sizes are skipped too.
    With `accepted` only the second rule applies: the group was accepted before it lost files to `max_files` or to
    another writer.
    """
    count, total_bytes = len(files), sum(file.size_bytes for file in files)
    written_bytes = int(total_bytes * (options.compression_factor or 1.0))
    outputs = min(expected_outputs(written_bytes, options), max(1, sum(file.rows for file in files)))
    if options.rewrite_all:
        return Verdict(True, f"rewrite_all: {sizes_of(files)} rewritten into {outputs}", outputs)
    with_deletes = files if inventory.has_deletes else ()
    over_threshold = [file for file in with_deletes if has_too_many_deletes(inventory, file, options)]
    enough_files = count > 1 and count >= options.min_input_files
    enough_content = count > 1 and total_bytes > options.target_bytes
    too_much_content = total_bytes > options.max_file_bytes
    if not (enough_files or enough_content or too_much_content or over_threshold or accepted):
        return Verdict(False, _too_few(files, options), count)
    oversized = any(file.size_bytes > options.max_file_bytes for file in files)
    applies_deletes = bool(over_threshold) or any(has_effective_deletes(inventory, file) for file in with_deletes)
    # By size only, as in Iceberg, and for files that were accepted before: their order is the gain.
    orders_rows = options.order is not None and count > 1 and (options.max_depth is None or accepted)
    if not (outputs < count or oversized or applies_deletes or orders_rows):
        sentence = f"{sizes_of(files)}: a rewrite would write {files_text(outputs)}, no gain"
        return Verdict(False, sentence, count)
    if not applies_deletes and inventory.made_by_one_run(files, options.sizes_text):
        return Verdict(
            False, f"{sizes_of(files)}, written by one compaction for the same sizes: nothing to gain", count
        )
    return Verdict(True, _why_rewritten(inventory, files, over_threshold, outputs, options), outputs)


def has_too_many_deletes(inventory: TableInventory, file: LiveFile, options: CompactionOptions) -> bool:
    """Whether a file has too many deletes, by the number of delete files or by the known share of deleted rows."""
    if file.rows > 0:
        share = inventory.known_deleted_rows(file) / file.rows
        if share > 0 and share >= options.delete_ratio_threshold:
            return True
    if options.delete_file_threshold is None:
        return False
    # With a threshold of 0 every run would rewrite every file, so at least one delete is required.
    return len(effective_deletes(inventory, file)) >= max(1, options.delete_file_threshold)


def effective_deletes(inventory: TableInventory, file: LiveFile) -> Sequence[LiveDelete]:
    """Return the deletes that can delete a row of the file, so that a rewrite makes them obsolete for it.

    By sequence number a partition-scoped position delete also applies to a compacted file, which keeps its old
    sequence number. But the delete was written before that file existed, and cannot contain its path.
    """
    deletes = inventory.deletes_for(file)
    added = file.file_sequence_number
    if not deletes or added is None or added <= file.sequence_number:
        return deletes
    return [d for d in deletes if d.kind is DeleteKind.EQUALITY or d.file_scoped or d.sequence_number >= added]


def has_effective_deletes(inventory: TableInventory, file: LiveFile) -> bool:
    return inventory.has_deletes and bool(effective_deletes(inventory, file))


def nothing_to_do(files: Sequence[LiveFile], options: CompactionOptions) -> str:
    """`3 files, all within 384 MB to 921.6 MB: nothing to do`."""
    span = f"within {format_bytes(options.min_file_bytes)} to {format_bytes(options.max_file_bytes)}"
    return f"{files_text(len(files))}, {'all ' if len(files) > 1 else ''}{span}: nothing to do"


def _why_rewritten(
    inventory: TableInventory,
    files: Sequence[LiveFile],
    over_threshold: Sequence[LiveFile],
    outputs: int,
    options: CompactionOptions,
) -> str:
    small = sum(1 for file in files if file.size_bytes < options.min_file_bytes)
    large = sum(1 for file in files if file.size_bytes > options.max_file_bytes)
    below, above = f"below {format_bytes(options.min_file_bytes)}", f"above {format_bytes(options.max_file_bytes)}"
    action = "merged into" if outputs < len(files) else "split into" if outputs > len(files) else "rewritten into"
    causes: list[str] = []
    if small == len(files):
        causes.append(below)
    elif large == len(files):
        causes.append(above)
    else:
        causes += [f"{small} {below}"] if small else []
        causes += [f"{large} {above}"] if large else []
    if over_threshold:
        causes.append(_threshold_reason(inventory, over_threshold, options))
    elif inventory.has_deletes and (count := sum(1 for file in files if has_effective_deletes(inventory, file))):
        causes.append(f"{count} with deletes to apply")
    return f"{sizes_of(files)}, {', '.join(causes)}: {action} {outputs}"


def _threshold_reason(inventory: TableInventory, over_threshold: Sequence[LiveFile], options: CompactionOptions) -> str:
    rows = sum(file.rows for file in over_threshold)
    deleted = sum(inventory.known_deleted_rows(file) for file in over_threshold)
    if rows and deleted / rows >= options.delete_ratio_threshold:
        threshold = f"delete_ratio_threshold {options.delete_ratio_threshold:g}"
        return f"{len(over_threshold)} with {deleted / rows:.0%} of rows deleted ({threshold})"
    most = max(len(effective_deletes(inventory, file)) for file in over_threshold)
    counted = "1 delete file" if most == 1 else f"up to {most} delete files"
    return f"{len(over_threshold)} with {counted} (delete_file_threshold {options.delete_file_threshold})"


def _too_few(files: Sequence[LiveFile], options: CompactionOptions) -> str:
    if len(files) == 1:
        return f"{sizes_of(files)}, alone: nothing to merge it with"
    return f"{files_text(len(files))}, fewer than min_input_files {options.min_input_files}"


def _unsupported(file: LiveFile) -> str:
    if file.encrypted:
        return "encrypted: left alone, this version does not rewrite them"
    return f"of format {file.file_format}: left alone, only Parquet is rewritten"


def sizes_of(files: Sequence[LiveFile]) -> str:
    """`3 files of 2 MB on average`."""
    average = sum(file.size_bytes for file in files) / len(files)
    return f"{files_text(len(files))} of {format_bytes(average)}{' on average' if len(files) > 1 else ''}"


def files_text(count: int) -> str:
    """`1 file`, `3 files`."""
    return f"{count} file{'' if count == 1 else 's'}"
