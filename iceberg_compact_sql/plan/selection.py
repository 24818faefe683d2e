"""Which files are worth rewriting, and the sentence that says why or why not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from iceberg_compact_sql.plan.model import CompactionOptions
from iceberg_compact_sql.plan.packing import expected_outputs
from iceberg_compact_sql.table.inventory import TableInventory
from iceberg_compact_sql.table.model import DeleteKind, LiveDelete, LiveFile
from iceberg_compact_sql.units import format_bytes


@dataclass(frozen=True, slots=True)
class Sorted:
    """The files of one partition by what may be done with them; each file is in exactly one list."""

    candidates: tuple[LiveFile, ...]
    healthy: tuple[LiveFile, ...]
    # Files that are never touched, with the reason.
    refused: tuple[tuple[str, tuple[LiveFile, ...]], ...] = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a group is rewritten, into how many files, and why."""

    rewrite: bool
    reason: str
    expected_files: int


def sort_files(inventory: TableInventory, files: Sequence[LiveFile], options: CompactionOptions) -> Sorted:
    """Candidates by Iceberg's rule: too small, too large, or too many rows deleted; with `rewrite_all`, every file.

    Files that this version cannot rewrite are never candidates: other formats, encrypted ones, and single rows that
    are larger than a file may be, as these cannot be split.
    """
    candidates: list[LiveFile] = []
    healthy: list[LiveFile] = []
    refused: dict[str, list[LiveFile]] = {}
    smallest, largest, everything = options.min_file_bytes, options.max_file_bytes, options.rewrite_all
    with_deletes = inventory.has_deletes
    for file in files:
        if file.file_format != "PARQUET" or file.encrypted:
            refused.setdefault(_unsupported(file), []).append(file)
        elif file.size_bytes > largest and file.rows == 1 and not everything and not deletes_help(inventory, file):
            refused.setdefault("of a single row: cannot be split", []).append(file)
        elif (
            everything
            or file.size_bytes < smallest
            or file.size_bytes > largest
            or (with_deletes and trips_deletes(inventory, file, options))
        ):
            candidates.append(file)
        else:
            healthy.append(file)
    return Sorted(
        tuple(candidates),
        tuple(healthy),
        tuple((_counted(found, why), tuple(found)) for why, found in refused.items()),
    )


def judge_group(
    inventory: TableInventory, files: Sequence[LiveFile], options: CompactionOptions, *, cut: bool = False
) -> Verdict:
    """Whether a packed group of candidates is rewritten.

    Iceberg's rule first: enough files, enough content, too much content, or deletes. Then ours: something must come
    of it. As many files out as in, none of them too large and no delete to apply, is work for nothing, and so would
    the next run be: such a group is left alone, so that a second run finds nothing to do. So is one that a single
    compaction of ours wrote for the same sizes, as when files of several specs met in one partition. `cut` says that
    `max_files` took files away from a group that was kept: only the gain is asked for.
    """
    count, total_bytes = len(files), sum(file.size_bytes for file in files)
    outputs = min(expected_outputs(total_bytes, options), max(1, sum(file.rows for file in files)))
    if options.rewrite_all:
        return Verdict(True, f"rewrite_all: {_described(files)} rewritten into {outputs}", outputs)
    with_deletes = files if inventory.has_deletes else ()
    tripped = [file for file in with_deletes if trips_deletes(inventory, file, options)]
    enough_files = count > 1 and count >= options.min_input_files
    enough_content = count > 1 and total_bytes > options.target_bytes
    too_much_content = total_bytes > options.max_file_bytes
    if not (enough_files or enough_content or too_much_content or tripped or cut):
        return Verdict(False, _too_few(files, options), count)
    oversized = any(file.size_bytes > options.max_file_bytes for file in files)
    helped = bool(tripped) or any(deletes_help(inventory, file) for file in with_deletes)
    if not (outputs < count or oversized or helped):
        sentence = f"{_described(files)}: {outputs} would come out for {count}, no gain"
        return Verdict(False, sentence, count)
    if not helped and inventory.made_by_one_run(files, options.sizes_text):
        return Verdict(
            False, f"{_described(files)}, written by one compaction for the same sizes: nothing to gain", count
        )
    return Verdict(True, _why_rewritten(inventory, files, tripped, outputs, options), outputs)


def trips_deletes(inventory: TableInventory, file: LiveFile, options: CompactionOptions) -> bool:
    """Whether a file has too many deletes, by the number of delete files or by the known share of deleted rows."""
    if file.rows > 0:
        share = inventory.known_deleted_rows(file) / file.rows
        if share > 0 and share >= options.delete_ratio_threshold:
            return True
    if options.delete_file_threshold is None:
        return False
    # A threshold of 0 would have every file rewritten for ever: one delete is the least that can be applied.
    return len(effective_deletes(inventory, file)) >= max(1, options.delete_file_threshold)


def effective_deletes(inventory: TableInventory, file: LiveFile) -> Sequence[LiveDelete]:
    """The deletes that may really name a row of the file, so that rewriting it gets rid of them.

    By its sequence number a partition-wide position delete also applies to a compacted file that keeps its old
    number; but it was written before that file existed, and cannot name it.
    """
    deletes = inventory.deletes_for(file)
    added = file.file_sequence_number
    if not deletes or added is None or added <= file.sequence_number:
        return deletes
    return [d for d in deletes if d.kind is DeleteKind.EQUALITY or d.file_scoped or d.sequence_number >= added]


def deletes_help(inventory: TableInventory, file: LiveFile) -> bool:
    return inventory.has_deletes and bool(effective_deletes(inventory, file))


def nothing_to_do(files: Sequence[LiveFile], options: CompactionOptions) -> str:
    """`3 files, all within 384 MB to 921.6 MB: nothing to do`."""
    span = f"within {format_bytes(options.min_file_bytes)} to {format_bytes(options.max_file_bytes)}"
    return f"{_files(len(files))}, {'all ' if len(files) > 1 else ''}{span}: nothing to do"


def _why_rewritten(
    inventory: TableInventory,
    files: Sequence[LiveFile],
    tripped: Sequence[LiveFile],
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
    if tripped:
        causes.append(_why_tripped(inventory, tripped, options))
    elif inventory.has_deletes and (helped := sum(1 for file in files if deletes_help(inventory, file))):
        causes.append(f"{helped} with deletes to apply")
    return f"{_described(files)}, {', '.join(causes)}: {action} {outputs}"


def _why_tripped(inventory: TableInventory, tripped: Sequence[LiveFile], options: CompactionOptions) -> str:
    rows = sum(file.rows for file in tripped)
    deleted = sum(inventory.known_deleted_rows(file) for file in tripped)
    if rows and deleted / rows >= options.delete_ratio_threshold:
        threshold = f"delete_ratio_threshold {options.delete_ratio_threshold:g}"
        return f"{len(tripped)} with {deleted / rows:.0%} of rows deleted ({threshold})"
    most = max(len(effective_deletes(inventory, file)) for file in tripped)
    counted = "1 delete file" if most == 1 else f"up to {most} delete files"
    return f"{len(tripped)} with {counted} (delete_file_threshold {options.delete_file_threshold})"


def _too_few(files: Sequence[LiveFile], options: CompactionOptions) -> str:
    if len(files) == 1:
        return f"{_described(files)}, alone: nothing to merge it with"
    return f"{_files(len(files))}, fewer than min_input_files {options.min_input_files}"


def _unsupported(file: LiveFile) -> str:
    if file.encrypted:
        return "encrypted: left alone, this version does not rewrite them"
    return f"of format {file.file_format}: left alone, only Parquet is rewritten"


def _counted(files: Sequence[LiveFile], why: str) -> str:
    return f"{_files(len(files))} {why}"


def _described(files: Sequence[LiveFile]) -> str:
    average = sum(file.size_bytes for file in files) / len(files)
    return f"{_files(len(files))} of {format_bytes(average)}{' on average' if len(files) > 1 else ''}"


def _files(count: int) -> str:
    return f"{count} file{'' if count == 1 else 's'}"
