"""Files under a table's location that nothing in its metadata names: found, checked twice, then deleted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from iceberg_compact_sql import events
from iceberg_compact_sql.errors import IcebergCompactError, InvalidArgumentError
from iceberg_compact_sql.reclaim import quarantine
from iceberg_compact_sql.reclaim.cluster_search import (
    DEFAULT_DRIVER_FILES,
    ClusterWork,
    search_on_cluster,
    told_by_task,
)
from iceberg_compact_sql.reclaim.commit_expiry import refuse_other_table, reload
from iceberg_compact_sql.reclaim.foreign_tables import (
    is_table_metadata,
    refuse_foreign_tables,
    refuse_place_of_another,
    refuse_shared_place,
)
from iceberg_compact_sql.reclaim.known_files import Standing, ValidFiles
from iceberg_compact_sql.reclaim.owned_roots import checked_location, inside
from iceberg_compact_sql.reclaim.reachability import FileKind, NeededFile, Reachability
from iceberg_compact_sql.reclaim.retention import refuse_without_gc
from iceberg_compact_sql.storage.io_properties import io_properties
from iceberg_compact_sql.storage.local import through_symlink
from iceberg_compact_sql.storage.locations import join, relative_to, split_location
from iceberg_compact_sql.storage.stores import StoredFile, Stores

_HOUR_MS = 3_600_000
DEFAULT_AGE_MS = 72 * _HOUR_MS
LEAST_AGE_MS = 24 * _HOUR_MS
_DELETE_BATCH = 5_000
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class OrphanRequest:
    """What the user asked to clean; None leaves it to the defaults."""

    now_ms: int
    older_than_ms: int | None = None
    location: str | None = None
    equal_schemes: Mapping[str, str] = field(default_factory=dict)
    equal_authorities: Mapping[str, str] = field(default_factory=dict)
    prefix_mismatch_mode: str = "ERROR"
    max_share: float = 0.5
    force: bool = False
    workers: int | None = None
    quarantine_ms: int | None = None
    # With more data and delete files than this, listing and comparing run on the cluster where there is one.
    driver_files: int = DEFAULT_DRIVER_FILES

    @property
    def cutoff_ms(self) -> int:
        return self.now_ms - DEFAULT_AGE_MS if self.older_than_ms is None else self.older_than_ms

    def __post_init__(self) -> None:
        if self.older_than_ms is not None and self.now_ms - self.older_than_ms < LEAST_AGE_MS:
            raise InvalidArgumentError(
                "older_than is less than 24 hours ago: files of a write under way would look like orphans",
                argument="older_than",
                value=self.older_than_ms,
                hint="Give a time at least 24 hours ago; the default is 3 days.",
            )
        if self.prefix_mismatch_mode.upper() not in ("ERROR", "IGNORE", "DELETE"):
            raise InvalidArgumentError(
                f"prefix_mismatch_mode is {self.prefix_mismatch_mode!r} but must be ERROR, IGNORE or DELETE",
                argument="prefix_mismatch_mode",
                value=self.prefix_mismatch_mode,
            )


@dataclass(frozen=True, slots=True)
class OrphanPlan:
    """The orphans of one listing, sorted by path; exactly these are what a run deletes, minus what changed since."""

    root: str
    orphans: tuple[StoredFile, ...]
    listed: int


class OrphanSearch:
    """One search and the deletion that may follow it: the index of needed files is read once and then kept fresh."""

    def __init__(self, table: Table, request: OrphanRequest, spark: Any = None) -> None:
        refuse_without_gc(table.metadata)
        self._table = table
        self._request = request
        self._root = checked_location(table.metadata, request.location)
        _refuse_quarantine(table.metadata, self._root)
        self._stores = Stores(table.io, workers=request.workers)
        self._reader = Reachability(self._stores)
        self._valid = ValidFiles(request.equal_schemes, request.equal_authorities)
        self._seen_location: str | None = None
        self._spark = spark if spark is not None and _live_files(table) > request.driver_files else None

    def find(self, file_list: Iterable[tuple[str, int | None]] | None = None) -> OrphanPlan:
        """List the place, or take the given paths and times, and keep what nothing names; changes nothing."""
        refuse_place_of_another(self._table, self._stores, self._root)
        if self._spark is not None and file_list is None:
            listed, unknown = self._search_on_cluster()
        else:
            listed, unknown = self._search_here(file_list)
        unknown_metadata = [file.path for file in unknown if is_table_metadata(file.path)]
        unknown_metadata += self._metadata_elsewhere(listed_by_user=file_list is not None)
        # A store that does not say when a file was written may be showing one that is being written now.
        candidates = [f for f in unknown if f.modified_ms is not None and f.modified_ms < self._request.cutoff_ms]
        events.reach("orphans.listed", listed=listed, candidates=len(candidates))
        # What was committed while the listing ran is looked at before anything is called an orphan.
        self._catch_up(reload(self._table))
        refuse_foreign_tables(self._table, self._stores, (p for p in unknown_metadata if self._orphan(p)))
        refuse_shared_place(self._table, self._root)
        orphans = [file for file in candidates if self._orphan(file.path)]
        if file_list is not None:
            orphans = self._as_stored(orphans)
        return OrphanPlan(self._root, tuple(sorted(orphans, key=lambda file: file.path)), listed)

    def _metadata_elsewhere(self, *, listed_by_user: bool) -> list[str]:
        """Metadata files that nothing names and that the search did not pass: whose are the files that it did?"""
        metadata = self._table.metadata
        found = []
        for folder in dict.fromkeys((quarantine.metadata_root(metadata), join(metadata.location, "metadata"))):
            if listed_by_user or relative_to(split_location(self._root), split_location(folder)) is None:
                # No folder has such a name, so none is entered.
                found += [file.path for file in self._stores.walk(folder, is_table_metadata)]
        return [path for path in found if self._valid.standing(path) is Standing.UNKNOWN]

    def _search_here(self, file_list: Iterable[tuple[str, int | None]] | None) -> tuple[int, list[StoredFile]]:
        """How many files there are, and those that are old or table metadata and named nowhere."""
        self._catch_up(self._table)
        events.reach("orphans.valid", files=len(self._valid))
        listed = 0
        unknown: list[StoredFile] = []
        for file in self._listing() if file_list is None else self._given(file_list):
            listed += 1
            old = file.modified_ms is not None and file.modified_ms < self._request.cutoff_ms
            if (old or is_table_metadata(file.path)) and self._orphan(file.path):
                unknown.append(file)
        return listed, unknown

    def _search_on_cluster(self) -> tuple[int, list[StoredFile]]:
        manifests = self._valid.add_table(self._table, self._reader, with_content=False)
        self._seen_location = self._table.metadata_location
        events.reach("orphans.valid", files=len(self._valid))
        request = self._request
        work = ClusterWork(
            io_properties(self._table.io.properties),
            self._root,
            self._visible(),
            request.equal_schemes,
            request.equal_authorities,
        )
        try:
            found = search_on_cluster(self._spark, work, self._stores, manifests, self._valid.locations())
        except IcebergCompactError:
            raise
        except Exception as error:
            raise told_by_task(error) from error
        spared = set()
        for path, same_path in found.doubts:
            if not same_path:
                raise _spelling_doubt(path)
            if request.prefix_mismatch_mode.upper() == "ERROR":
                raise self._prefix_doubt(path)
            if request.prefix_mismatch_mode.upper() == "IGNORE":
                spared.add(path)
        return found.listed, [file for file in found.unknown if file.path not in spared]

    def delete(self, plan: OrphanPlan) -> Iterator[tuple[StoredFile, bool]]:
        """Delete a plan's files, each checked again right before; gives whether each one is gone.

        A file that the table needs by now, or that was written again, is spared and given as not deleted.
        """
        self._refuse_large_share(plan)
        return self._delete_checked(plan)

    def _delete_checked(self, plan: OrphanPlan) -> Iterator[tuple[StoredFile, bool]]:
        run_id = quarantine.new_run_id()
        quarantine.purge(self._stores, quarantine.runs(self._stores, self._table.metadata)[0], self._request.now_ms)
        for start in range(0, len(plan.orphans), _DELETE_BATCH):
            batch = plan.orphans[start : start + _DELETE_BATCH]
            events.reach("orphans.check", files=len(batch))
            self._catch_up(reload(self._table))
            doomed = [file for file in batch if self._orphan(file.path)]
            states = dict(
                zip(doomed, self._stores.each(lambda file: self._stores.stat(file.path), doomed), strict=True)
            )
            unchanged = [file for file, now in states.items() if now is not None and _same(file, now)]
            events.reach("orphans.delete", files=len(unchanged))
            failures = self._remove(unchanged, f"{run_id}-{start}")
            gone = {file.path for file in unchanged if file.path not in failures}
            gone.update(file.path for file, now in states.items() if now is None)
            yield from ((file, file.path in gone) for file in batch)

    def _remove(self, files: list[StoredFile], run_id: str) -> dict[str, str]:
        if not self._request.quarantine_ms or not files:
            return self._stores.delete(file.path for file in files)
        moved = [NeededFile(file.path, FileKind.DATA, file.size_bytes) for file in files]
        return quarantine.put_aside(
            self._stores,
            self._table.metadata,
            moved,
            run_id=run_id,
            now_ms=self._request.now_ms,
            keep_ms=self._request.quarantine_ms,
        )

    def _catch_up(self, fresh: Table) -> None:
        """Add what the freshest metadata names; does nothing while the table has not changed."""
        if fresh.metadata_location != self._seen_location:
            refuse_other_table(self._table.metadata.table_uuid, fresh)
            refuse_without_gc(fresh.metadata)
            self._valid.add_table(fresh, self._reader)
            self._seen_location = fresh.metadata_location
            self._stores.renew(fresh.io)

    def _orphan(self, path: str) -> bool:
        standing = self._valid.standing(path)
        if standing is Standing.OTHER_PREFIX:
            mode = self._request.prefix_mismatch_mode.upper()
            if mode == "ERROR":
                raise self._prefix_doubt(path)
            return mode == "DELETE"
        if standing is Standing.OTHER_SPELLING:
            raise _spelling_doubt(path)
        return standing is Standing.UNKNOWN

    def _prefix_doubt(self, path: str) -> IcebergCompactError:
        place = split_location(path)
        known = ", ".join(self._valid.prefixes(path))
        return IcebergCompactError(
            f"{path} is listed under {place.scheme}://{place.authority}, the metadata names that path under {known}",
            argument="prefix_mismatch_mode",
            value=self._request.prefix_mismatch_mode,
            hint="Say which are the same with equal_schemes or equal_authorities, or set prefix_mismatch_mode to "
            "IGNORE; DELETE only if they are surely different.",
        )

    def _listing(self) -> Iterator[StoredFile]:
        return self._stores.walk(self._root, self._visible())

    def _visible(self) -> Callable[[str], bool]:
        aside = relative_to(
            split_location(self._root), split_location(quarantine.quarantine_root(self._table.metadata))
        )
        return visible(self._table.metadata, aside)

    def _given(self, file_list: Iterable[tuple[str, int | None]]) -> Iterator[StoredFile]:
        """Rows of the user's own list that lie below the root, whatever their spelling."""
        root = split_location(self._root)
        accepts = visible(self._table.metadata, None)
        seen: set[str] = set()
        for path, modified_ms in file_list:
            # One file may be listed under several spellings.
            identity = self._valid.identity(path)[0]
            if identity not in seen and inside(root, path):
                seen.add(identity)
                relative = relative_to(root, split_location(path)) or ""
                levels = relative.split("/")
                if all(accepts("/".join(levels[: at + 1])) for at in range(len(levels))):
                    yield StoredFile(path, 0, modified_ms)

    def _as_stored(self, files: list[StoredFile]) -> list[StoredFile]:
        """The listed files that exist, as the store has them now; one written since the list was made is left out."""
        stored = self._stores.each(lambda file: self._stores.stat(file.path), files)
        return [
            now
            for now in stored
            if now is not None
            and now.modified_ms is not None
            and now.modified_ms < self._request.cutoff_ms
            and not (split_location(now.path).scheme == "file" and through_symlink(self._root, now.path))
        ]

    def _refuse_large_share(self, plan: OrphanPlan) -> None:
        share = len(plan.orphans) / plan.listed if plan.listed else 0.0
        if share > self._request.max_share and not self._request.force:
            shown = ", ".join(file.path for file in plan.orphans[:_SHOWN])
            raise IcebergCompactError(
                f"{len(plan.orphans)} of {plan.listed} files ({share:.0%}) would go, more than max_share "
                f"{self._request.max_share:g} allows; nothing was deleted. The first ones: {shown}",
                argument="max_share",
                value=self._request.max_share,
                hint="Look at the dry run; if they are right, run with force => true or a larger max_share.",
            )


def visible(metadata: TableMetadata, aside: str | None) -> Callable[[str], bool]:
    """Whether a level of a path may be entered: not names with `_` or `.` in front, unless of a partition.

    Those are the folders and files of jobs under way, and the quarantine.
    """
    hidden_partitions = tuple(
        f"{partition.name}="
        for spec in metadata.partition_specs
        for partition in spec.fields
        if partition.name.startswith(("_", "."))
    )

    def enter(relative: str) -> bool:
        if relative == aside:
            return False
        name = relative.rsplit("/", 1)[-1]
        if not name.startswith(("_", ".")):
            return True
        return bool(hidden_partitions) and name.startswith(hidden_partitions)

    return enter


def _refuse_quarantine(metadata: TableMetadata, root: str) -> None:
    """Refuse a place inside the quarantine: what is there waits for its time, and is no orphan before."""
    if relative_to(split_location(quarantine.quarantine_root(metadata)), split_location(root)) is not None:
        raise InvalidArgumentError(
            f"location {root} is the table's quarantine",
            argument="location",
            value=root,
            hint="Its files go by themselves when their time is over; restore_quarantine brings them back.",
        )


def _spelling_doubt(path: str) -> IcebergCompactError:
    return IcebergCompactError(
        f"{path} may be a file of the table under another spelling (percent-encoding, '+', '//' or unicode)",
        hint="Nobody can tell whether it is an orphan. Move it away, or clean another location.",
    )


def _live_files(table: Table) -> int:
    """How many files the current snapshot counts: what the driver would have to hold, roughly."""
    snapshot = table.current_snapshot()
    if snapshot is None or snapshot.summary is None:
        return 0
    counts = (snapshot.summary.get("total-data-files"), snapshot.summary.get("total-delete-files"))
    return sum(int(count) for count in counts if count is not None and count.isdigit())


def _same(listed: StoredFile, now: StoredFile) -> bool:
    return now.modified_ms == listed.modified_ms and now.size_bytes == listed.size_bytes
