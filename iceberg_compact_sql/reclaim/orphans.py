"""Find files under a table's location that no metadata names, check them again, and delete them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from iceberg_compact_sql import events
from iceberg_compact_sql.call.iceberg_errors import prefix_conflicts
from iceberg_compact_sql.catalogs.complete_metadata import require_complete_metadata
from iceberg_compact_sql.errors import IcebergCompactError, InvalidArgumentError
from iceberg_compact_sql.reclaim import quarantine
from iceberg_compact_sql.reclaim.cluster_search import (
    DEFAULT_DRIVER_FILES,
    ClusterWork,
    Workers,
    search_on_cluster,
)
from iceberg_compact_sql.reclaim.commit_expiry import refuse_other_table, reload
from iceberg_compact_sql.reclaim.damage_checks import refuse_broken_refs, refuse_damage
from iceberg_compact_sql.reclaim.find_records import find_records
from iceberg_compact_sql.reclaim.journals import keep_times
from iceberg_compact_sql.reclaim.known_files import KnownFiles, PathMatch
from iceberg_compact_sql.reclaim.metadata_versions import (
    MetadataFile,
    load_version,
    refuse_copied_folder,
    refuse_folder_of_another_table,
    refuse_other_tables,
    require_one_name,
)
from iceberg_compact_sql.reclaim.named_by_others import OtherTables
from iceberg_compact_sql.reclaim.owned_roots import checked_location
from iceberg_compact_sql.reclaim.reachability import FileKind, NeededFile, Reachability
from iceberg_compact_sql.reclaim.record_files import metadata_root, new_run_id, quarantine_root
from iceberg_compact_sql.reclaim.retention import refuse_without_gc
from iceberg_compact_sql.reclaim.visible_paths import VisiblePaths
from iceberg_compact_sql.storage.io_properties import io_properties
from iceberg_compact_sql.storage.local import through_symlink
from iceberg_compact_sql.storage.locations import join, relative_to, split_location
from iceberg_compact_sql.storage.metadata_json import is_metadata_json
from iceberg_compact_sql.storage.protocol import StoredFile
from iceberg_compact_sql.storage.same_file import stored_key
from iceberg_compact_sql.storage.stores import Stores
from iceberg_compact_sql.table.properties import require_full_locations

_HOUR_MS = 3_600_000
DEFAULT_AGE_MS = 72 * _HOUR_MS
LEAST_AGE_MS = 24 * _HOUR_MS
_DELETE_BATCH = 5_000
_LISTED_BETWEEN_STOPS = 1_000
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
    # Tables of the catalog that have no files in the location, as the user says.
    ignored_tables: frozenset[str] = frozenset()
    # With more data and delete files than this, the search runs on the cluster if there is one.
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
    """The orphans of one listing, sorted by path. A run deletes exactly these, except files that changed since."""

    root: str
    orphans: tuple[StoredFile, ...]
    listed: int


class OrphanSearch:
    """One search for orphans and their deletion; the index of needed files is read once and then updated."""

    def __init__(
        self, table: Table, request: OrphanRequest, workers: Callable[[], Workers | None] | None = None
    ) -> None:
        refuse_without_gc(table.metadata)
        require_full_locations(table.metadata.location, table.metadata.properties)
        refuse_copied_folder(table)
        require_complete_metadata(table)
        refuse_broken_refs(table.metadata)
        self._table = table
        self._request = request
        self._root = checked_location(table.metadata, request.location)
        _refuse_quarantine(table.metadata, self._root)
        self._stores = Stores(table.io, workers=request.workers)
        self._reader = Reachability(self._stores)
        self._known = KnownFiles(request.equal_schemes, request.equal_authorities)
        self._conflicts: dict[tuple[str, str], str] = {}
        self._others = OtherTables(table, self._stores.workers, request.ignored_tables)
        self._seen_location: str | None = None
        # Only for a table whose paths the driver could not hold: the workers may have to start Spark first.
        self._workers = workers() if workers is not None and _live_files(table) > request.driver_files else None

    def find(self, file_list: Iterable[tuple[str, int | None]] | None = None) -> OrphanPlan:
        """Return the files of the location, or of the given list, that nothing names; changes nothing."""
        refuse_folder_of_another_table(self._table, self._stores, self._root)
        if self._workers is not None and file_list is None:
            listed, unknown = self._search_on_cluster(self._workers)
        else:
            listed, unknown = self._search_here(file_list)
        unknown_metadata = [file.path for file in unknown if is_metadata_json(file.path)]
        unknown_metadata += self._metadata_elsewhere(listed_by_user=file_list is not None)
        # A file without a modification time may be one that is being written now: it is kept.
        candidates = [f for f in unknown if f.modified_ms is not None and f.modified_ms < self._request.cutoff_ms]
        events.reach("orphans.listed", listed=listed, candidates=len(candidates))
        # Commits that landed during the listing are read before any file counts as an orphan.
        versions = self._check_versions(p for p in unknown_metadata if self._is_orphan(p))
        refuse_other_tables(self._table, [v for v in versions if self._is_orphan(v.path)])
        orphans = [file for file in candidates if self._is_orphan(file.path)]
        self._refuse_conflicts()
        checked_on_cluster = self._workers is not None and file_list is None
        if not checked_on_cluster and not all(is_metadata_json(file.path) for file in orphans):
            metadata = reload(self._table).metadata
            refuse_damage(self._stores, self._reader, metadata, (file.path for file in orphans))
        if file_list is not None:
            orphans = self._as_stored(orphans)
        orphans = self._not_named_by_others(orphans)
        return OrphanPlan(self._root, tuple(sorted(orphans, key=lambda file: file.path)), listed)

    def _check_versions(self, listed: Iterable[str] = ()) -> list[MetadataFile]:
        """Reload the table; count view metadata, and files of versions that may be current elsewhere, as needed."""
        versions = require_one_name(self._table, lambda: reload(self._table), self._stores, listed)
        self._add_newest(versions.table if versions.unknown else reload(self._table))
        for view in (file for file in versions.unknown if file.is_view):
            self._known.add(view.path)
        for file in versions.doubtful:
            try:
                self._known.add_table(load_version(versions.table, self._stores, file), self._reader)
            except IcebergCompactError as error:
                # A version with a missing file cannot be read under any name.
                if not isinstance(error.__cause__, FileNotFoundError):
                    raise
        return versions.unknown

    def _not_named_by_others(self, orphans: list[StoredFile]) -> list[StoredFile]:
        named = self._others.naming([file.path for file in orphans], self._known.identity, search_root=self._root)
        return [file for file in orphans if file.path not in named]

    def _metadata_elsewhere(self, *, listed_by_user: bool) -> list[str]:
        """Return metadata files outside the search that nothing names: they show whether another table is here."""
        metadata = self._table.metadata
        paths = []
        for folder in dict.fromkeys((metadata_root(metadata), join(metadata.location, "metadata"))):
            if listed_by_user or relative_to(split_location(self._root), split_location(folder)) is None:
                # No subfolder has the name of a metadata file, so only this level is listed.
                paths += [file.path for file in self._stores.walk(folder, is_metadata_json)]
        return [path for path in paths if self._known.match(path) is PathMatch.UNKNOWN]

    def _search_here(self, file_list: Iterable[tuple[str, int | None]] | None) -> tuple[int, list[StoredFile]]:
        """Return how many files were listed, and those that nothing names and that are old or table metadata."""
        self._add_newest(self._table)
        events.reach("orphans.valid", files=len(self._known))
        listed = 0
        unknown: list[StoredFile] = []
        for file in self._listing() if file_list is None else self._given(file_list):
            listed += 1
            if listed % _LISTED_BETWEEN_STOPS == 0:
                events.stop_if_cancelled()
            old = file.modified_ms is not None and file.modified_ms < self._request.cutoff_ms
            if (old or is_metadata_json(file.path)) and self._is_orphan(file.path):
                unknown.append(file)
        self._refuse_conflicts()
        return listed, unknown

    def _search_on_cluster(self, workers: Workers) -> tuple[int, list[StoredFile]]:
        manifests = self._known.add_table(self._table, self._reader, with_content=False)
        self._seen_location = self._table.metadata_location
        events.reach("orphans.valid", files=len(self._known))
        request = self._request
        work = ClusterWork(
            io_properties(self._table.io.properties),
            self._root,
            self._visible(),
            request.equal_schemes,
            request.equal_authorities,
        )
        findings = search_on_cluster(workers, work, self._stores, manifests, self._known.named())
        kept = set()
        for path, prefixes in findings.other_prefixes:
            if not self._is_other_file(path, prefixes):
                kept.add(path)
        self._refuse_conflicts()
        for path in findings.other_spellings:
            raise _spelling_doubt(path)
        return findings.listed, [file for file in findings.unknown if file.path not in kept]

    def delete(self, plan: OrphanPlan) -> Iterator[tuple[StoredFile, bool]]:
        """Delete a plan's files; returns for each one whether it is deleted.

        Each file is checked again right before. A file that is needed now, or was written again, is not deleted.
        """
        self._refuse_large_share(plan)
        return self._delete_checked(plan)

    def _delete_checked(self, plan: OrphanPlan) -> Iterator[tuple[StoredFile, bool]]:
        run_id = new_run_id()
        records = find_records(self._stores, self._table.metadata)
        quarantine.purge(self._stores, records.quarantined, self._request.now_ms, self._needed_of)
        for start in range(0, len(plan.orphans), _DELETE_BATCH):
            batch = plan.orphans[start : start + _DELETE_BATCH]
            events.reach("orphans.check", files=len(batch))
            # A commit, or a new or registered table, may need a file since the listing.
            self._check_versions()
            orphans = [file for file in batch if self._is_orphan(file.path)]
            self._refuse_conflicts()
            to_delete = self._not_named_by_others(orphans)
            states = dict(
                zip(to_delete, self._stores.each(lambda file: self._stores.stat(file.path), to_delete), strict=True)
            )
            unchanged = [file for file, now in states.items() if now is not None and _is_unchanged(file, now)]
            events.reach("orphans.delete", files=len(unchanged))
            failures = self._remove(unchanged, f"{run_id}-{start}")
            gone = {file.path for file in unchanged if file.path not in failures}
            gone.update(file.path for file, now in states.items() if now is None)
            yield from ((file, file.path in gone) for file in batch)

    def _needed_of(self, paths: Sequence[str]) -> set[str]:
        """Return the paths that the newest metadata names."""
        return self._reader.needed_among(reload(self._table).metadata, paths)

    def _remove(self, files: list[StoredFile], run_id: str) -> dict[str, str]:
        """Delete files or move them aside; returns the reason for each path for which that failed."""
        keep_ms = self._keep_times(files)
        failures = self._stores.delete(file.path for file in files if file.path not in keep_ms)
        aside = [NeededFile(file.path, FileKind.DATA, file.size_bytes) for file in files]
        now_ms = self._request.now_ms
        failures.update(
            quarantine.put_aside_until(self._stores, self._table.metadata, aside, keep_ms, run_id=run_id, now_ms=now_ms)
        )
        return failures

    def _keep_times(self, files: list[StoredFile]) -> dict[str, int]:
        """Return for each path how long it is kept in quarantine; files that are deleted at once are left out.

        An expiry with quarantine that was interrupted, or is still at work, leaves files that look like orphans.
        """
        if self._request.quarantine_ms:
            return dict.fromkeys((file.path for file in files), self._request.quarantine_ms)
        times = keep_times(find_records(self._stores, self._table.metadata).pending) if files else {}
        return {file.path: times[key] for file in files if (key := stored_key(file.path)) in times}

    def _add_newest(self, fresh: Table) -> None:
        """Add the files that the newest metadata names; does nothing if the table has not changed."""
        if fresh.metadata_location != self._seen_location:
            refuse_broken_refs(fresh.metadata)
            refuse_other_table(self._table.metadata.table_uuid, fresh)
            refuse_without_gc(fresh.metadata)
            self._known.add_table(fresh, self._reader)
            self._seen_location = fresh.metadata_location
            self._stores.renew(fresh.io)

    def _is_orphan(self, path: str) -> bool:
        match = self._known.match(path)
        if match is PathMatch.OTHER_PREFIX:
            return self._is_other_file(path, self._known.prefixes(path))
        if match is PathMatch.OTHER_SPELLING:
            raise _spelling_doubt(path)
        return match is PathMatch.UNKNOWN

    def _is_other_file(self, path: str, named_prefixes: Iterable[str]) -> bool:
        """Whether a path that the metadata names under other prefixes is an orphan, by `prefix_mismatch_mode`."""
        mode = self._request.prefix_mismatch_mode.upper()
        if mode == "ERROR":
            for prefix in named_prefixes:
                self._conflicts.setdefault((self._known.identity(path).prefix, prefix), path)
        return mode == "DELETE"

    def _refuse_conflicts(self) -> None:
        """Refuse if listed files are named by the metadata under another scheme or authority."""
        if not self._conflicts:
            return
        pairs = ", ".join(f"({listed}, {named})" for listed, named in sorted(self._conflicts))
        raise IcebergCompactError(
            f"{next(iter(self._conflicts.values()))} may be a file of the table: the metadata names that path under "
            f"another scheme or authority. Conflicting authorities/schemes (listed, in the metadata): {pairs}",
            argument="prefix_mismatch_mode",
            value=self._request.prefix_mismatch_mode,
            hint="Say which are the same with equal_schemes or equal_authorities, or set prefix_mismatch_mode to "
            "IGNORE. Use DELETE only if they are certainly different stores.",
            iceberg=prefix_conflicts(sorted(self._conflicts)),
        )

    def _listing(self) -> Iterator[StoredFile]:
        return self._stores.walk(self._root, self._visible())

    def _visible(self) -> VisiblePaths:
        aside = relative_to(split_location(self._root), split_location(quarantine_root(self._table.metadata)))
        return VisiblePaths.of(self._table.metadata, aside)

    def _given(self, file_list: Iterable[tuple[str, int | None]]) -> Iterator[StoredFile]:
        """Return the rows of the user's list that are below the root, in any spelling."""
        is_visible = VisiblePaths.of(self._table.metadata, None)
        seen: set[tuple[str, str]] = set()
        for path, modified_ms in file_list:
            # One file may be listed under several spellings.
            identity = self._known.identity(path)[:2]
            relative = self._known.relative(self._root, path)
            if identity not in seen and relative and ".." not in relative.split("/"):
                seen.add(identity)
                levels = relative.split("/")
                if all(is_visible("/".join(levels[: depth + 1])) for depth in range(len(levels))):
                    yield StoredFile(path, 0, modified_ms)

    def _as_stored(self, files: list[StoredFile]) -> list[StoredFile]:
        """Return the listed files with their current size and time; missing and newly written ones are left out."""
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
                f"{len(plan.orphans)} of {plan.listed} files ({share:.0%}) would be deleted, more than max_share "
                f"{self._request.max_share:g} allows; nothing was deleted. The first ones: {shown}",
                argument="max_share",
                value=self._request.max_share,
                hint="Check the dry run. If all of them are orphans, run with force => true or a larger max_share.",
            )


def _refuse_quarantine(metadata: TableMetadata, root: str) -> None:
    """Refuse a location in the quarantine: quarantined files are not orphans until their retention ends."""
    if relative_to(split_location(quarantine_root(metadata)), split_location(root)) is not None:
        raise InvalidArgumentError(
            f"location {root} is the table's quarantine",
            argument="location",
            value=root,
            hint="Later runs delete its files when their retention ends; restore_quarantine restores them.",
        )


def _spelling_doubt(path: str) -> IcebergCompactError:
    return IcebergCompactError(
        f"{path} may be a file of the table under another spelling (percent-encoding, '+', '//' or unicode)",
        hint="It is unknown whether it is an orphan. Move it away, or clean another location.",
    )


def _live_files(table: Table) -> int:
    """Return how many files the current snapshot counts: about as many paths as the driver would hold."""
    snapshot = table.current_snapshot()
    if snapshot is None or snapshot.summary is None:
        return 0
    counts = (snapshot.summary.get("total-data-files"), snapshot.summary.get("total-delete-files"))
    return sum(int(count) for count in counts if count is not None and count.isdigit())


def _is_unchanged(listed: StoredFile, now: StoredFile) -> bool:
    return now.modified_ms == listed.modified_ms and now.size_bytes == listed.size_bytes
