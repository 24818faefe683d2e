"""Rules about deletes: delete files that accumulate, their granularity, and the mode of writers."""

from __future__ import annotations

from collections.abc import Iterator

from pyiceberg.table.snapshots import Operation

from iceberg_compact_sql.format_versions import rules_of
from iceberg_compact_sql.plan.advice.model import Finding, TableFacts, share_text
from iceberg_compact_sql.plan.cost import Throughput, Work, estimate
from iceberg_compact_sql.plan.packing import expected_outputs
from iceberg_compact_sql.plan.selection import files_text
from iceberg_compact_sql.table.model import DeleteKind
from iceberg_compact_sql.table.properties import DELETE_GRANULARITY

_MIN_DELETE_FILES = 10
_DELETED_SHARE = 0.1
_FRAGMENT_RATIO = 0.5
_MODES = ("write.delete.mode", "write.update.mode", "write.merge.mode")
# Overwrites that delete less than this share of the rows that they rewrite are cheaper as merge-on-read.
_FEW_ROWS = 0.01
_MIN_OVERWRITES = 5
_RECENT_COMMITS = 100


def accumulated_deletes(facts: TableFacts) -> Iterator[Finding]:
    """Delete files that every read applies again, until a compaction applies them for good."""
    files, deletes = facts.inventory.files, facts.inventory.deletes
    if not files or not deletes:
        return
    equality = [delete for delete in deletes if delete.kind is DeleteKind.EQUALITY]
    rows = sum(file.rows for file in files)
    deleted = sum(partition.facts.position_deleted_rows for partition in facts.partitions)
    share = min(1.0, deleted / rows) if rows else 0.0
    ratio = len(deletes) / len(files)
    many = len(deletes) >= _MIN_DELETE_FILES and (ratio >= _FRAGMENT_RATIO or bool(equality))
    if share < _DELETED_SHARE and not many:
        return
    touched = [file for file in files if facts.inventory.deletes_for(file)]
    if not touched:
        return
    touched_bytes = sum(file.size_bytes for file in touched)
    work = Work(
        len(touched),
        touched_bytes,
        delete_files=len(deletes),
        delete_bytes=sum(delete.own_bytes for delete in deletes),
        outputs=expected_outputs(touched_bytes, facts.options),
    )
    kinds = [f"{len(equality)} by equality"] if equality else []
    if len(deletes) > len(equality):
        kinds.append(f"{len(deletes) - len(equality)} by position, {share_text(share)} of rows")
    yield Finding(
        topic="deletes",
        severity="high" if equality or share >= 0.3 or ratio >= 2 else "medium",
        finding=f"{len(deletes)} delete files for {files_text(len(files))}: {', '.join(kinds)}; "
        f"every read of {files_text(len(touched))} applies them again",
        action=facts.compact("delete_file_threshold => 1"),
        gain=f"{len(deletes)} delete files fewer in each full scan",
        cost_dollars=estimate(work, facts.prices, Throughput()).dollars,
        weight=min(1.0, max(ratio, share)),
    )


def delete_granularity(facts: TableFacts) -> Iterator[Finding]:
    """Position deletes that each name many data files, so that a read of one file reads the deletes of others."""
    wide = [d for d in facts.inventory.deletes if d.kind is DeleteKind.POSITION and not d.file_scoped]
    rules = rules_of(facts.metadata.format_version)
    if not rules.delete_files or rules.deletion_vectors or len(wide) < _MIN_DELETE_FILES:
        return
    if DELETE_GRANULARITY.of(facts.properties) == "file":
        return
    yield Finding(
        topic="delete mode",
        severity="low",
        finding=f"{len(wide)} position delete files name rows of several data files; "
        f"{DELETE_GRANULARITY.name} is {DELETE_GRANULARITY.of(facts.properties)!r}",
        action=facts.set_properties({DELETE_GRANULARITY.name: "file"}),
        gain="new deletes are read only with their data file",
        weight=0.2,
    )


def delete_mode(facts: TableFacts) -> Iterator[Finding]:
    """Copy-on-write commits that rewrite whole files to delete a few rows."""
    if not rules_of(facts.metadata.format_version).delete_files:
        return
    modes = {name: facts.properties.get(name, "copy-on-write").strip().lower() for name in _MODES}
    if modes["write.delete.mode"] == "merge-on-read":
        return
    deleted = rewritten = commits = 0
    for snapshot in facts.snapshots_by_time[-_RECENT_COMMITS:]:
        summary = snapshot.summary
        if summary is None or summary.operation != Operation.OVERWRITE or summary.get("added-delete-files"):
            continue
        gone, added = (_count(summary.get(key)) for key in ("deleted-records", "added-records"))
        # Only commits that removed rows and copied the others: an update adds as many rows as it removes.
        if gone > added > 0 and gone - added < _FEW_ROWS * gone:
            deleted, rewritten, commits = deleted + gone - added, rewritten + added, commits + 1
    if commits < _MIN_OVERWRITES:
        return
    changed = {name: "merge-on-read" for name, mode in modes.items() if mode != "merge-on-read"}
    yield Finding(
        topic="delete mode",
        severity="medium",
        finding=f"{commits} commits rewrote {rewritten:,} rows to delete {deleted:,} "
        f"({share_text(deleted / (deleted + rewritten))}); write.delete.mode is 'copy-on-write'",
        action=facts.set_properties(changed),
        gain=f"{rewritten:,} rows not rewritten; compaction then applies the deletes together",
        weight=0.6,
    )


def _count(text: str | None) -> int:
    return int(text) if text is not None and text.isdigit() else 0
