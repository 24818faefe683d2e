"""Find a table's journals and quarantined files, and prove that they are this table's.

Records of this version have the table uuid in their folder name and in their content. Records of earlier versions do
not: they count as this table's only if every metadata file in the parent folder has this table's uuid. Otherwise they
are not used, and a warning is logged.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from pyiceberg.table.metadata import TableMetadata

from iceberg_compact_sql.errors import IcebergCompactError
from iceberg_compact_sql.reclaim import journals
from iceberg_compact_sql.reclaim.journals import PendingDeletes, parse_journal
from iceberg_compact_sql.reclaim.metadata_versions import read_metadata_files
from iceberg_compact_sql.reclaim.quarantine import LISTING, MovedFile, QuarantinedRun, original_path
from iceberg_compact_sql.reclaim.record_files import belongs_to, known_roots, read_record
from iceberg_compact_sql.redaction import masked_logger
from iceberg_compact_sql.storage.locations import join, relative_to, split_location
from iceberg_compact_sql.storage.metadata_json import is_metadata_json
from iceberg_compact_sql.storage.protocol import StoredFile
from iceberg_compact_sql.storage.stores import Stores

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
# Hadoop keeps a checksum file beside each local file; it is moved with its file.
_SIDE_FILE = re.compile(r"\..*\.crc|.*\.partial")
_log = masked_logger(__name__)


@dataclass(frozen=True, slots=True)
class Records:
    """Records of a table's earlier runs; `unclaimed` are quarantined files whose table or original path is unknown."""

    quarantined: list[QuarantinedRun] = field(default_factory=list)
    pending: list[PendingDeletes] = field(default_factory=list)
    unclaimed: list[StoredFile] = field(default_factory=list)


def find_records(stores: Stores, metadata: TableMetadata, roots: Iterable[str] | None = None) -> Records:
    """Return every quarantined file and every unfinished deletion of a table, from one listing of each folder."""
    records = Records()
    for root in known_roots(metadata) if roots is None else roots:
        _Finder(stores, metadata, root, records).find()
    return records


class _Finder:
    """One quarantine folder, which several tables may share."""

    def __init__(self, stores: Stores, metadata: TableMetadata, root: str, records: Records) -> None:
        self._stores = stores
        self._metadata = metadata
        self._root = root.rstrip("/")
        self._records = records
        self._own = str(metadata.table_uuid)
        self._listings: dict[str, str] = {}
        # Quarantined files by run and by the time until which they are kept.
        self._moved: dict[tuple[str, int], list[StoredFile]] = defaultdict(list)
        self._unproved: dict[str, StoredFile] = {}

    def find(self) -> None:
        for file in self._stores.walk(self._root, self._enter):
            levels = file.path[len(self._root) + 1 :].split("/")
            if levels[0] == self._own:
                self._sort_own(file, levels[1:])
            elif not _SIDE_FILE.fullmatch(levels[-1]):
                self._unproved[file.path] = file
        self._read_runs()
        if self._unproved:
            self._read_unproved()

    def _enter(self, relative: str) -> bool:
        first = relative.partition("/")[0]
        return first == self._own or _UUID.fullmatch(first) is None

    def _sort_own(self, file: StoredFile, levels: list[str]) -> None:
        if len(levels) == 1 and levels[0].endswith(journals.SUFFIX):
            record = self._read(file.path)
            if record is not None and belongs_to(record, self._metadata, file.path):
                self._records.pending.append(parse_journal(file.path, record))
        elif levels[1:] == [LISTING]:
            self._listings[levels[0]] = file.path
        elif len(levels) > 2 and levels[1].isdigit() and not _SIDE_FILE.fullmatch(levels[-1]):
            self._moved[levels[0], int(levels[1])].append(file)

    def _read_runs(self) -> None:
        listed: set[str] = set()
        for run_id, path in self._listings.items():
            run = self._listed_run(run_id, path)
            if run is not None:
                self._records.quarantined.append(run)
                listed.update(moved.aside for moved in run.files)
        for (run_id, until_ms), files in self._moved.items():
            prefix = join(self._root, self._own, run_id, str(until_ms)) + "/"
            unlisted = tuple(
                MovedFile(original_path(self._root, f.path.removeprefix(prefix)), f.path, f.size_bytes)
                for f in sorted(files, key=lambda file: file.path)
                if f.path not in listed
            )
            if unlisted:
                self._records.quarantined.append(QuarantinedRun(run_id, None, until_ms, until_ms, unlisted))

    def _listed_run(self, run_id: str, path: str) -> QuarantinedRun | None:
        try:
            record = self._read(path)
        except IcebergCompactError as error:
            # The paths of the quarantined files hold the same facts.
            _log.warning("%s", error)
            return None
        if record is None or not belongs_to(record, self._metadata, path):
            return None
        return _parsed_run(run_id, path, record)

    def _read_unproved(self) -> None:
        """Use all records of earlier versions, or none of them."""
        if not self._is_only_table():
            self._records.unclaimed.extend(f for f in self._unproved.values() if not _is_record(f.path))
            _log.warning(
                "%s holds records without a table uuid, and other tables write there: they are not used", self._root
            )
            return
        listed: set[str] = set()
        for path in self._unproved:
            record = self._read(path) if _is_record(path) else None
            if record is None:
                continue
            if path.endswith(journals.SUFFIX):
                self._records.pending.append(parse_journal(path, record))
            else:
                run = _parsed_run(path.rsplit("/", 2)[-2], path, record)
                self._records.quarantined.append(run)
                listed.update(moved.aside for moved in run.files)
        self._records.unclaimed.extend(
            file for path, file in self._unproved.items() if not _is_record(path) and path not in listed
        )

    def _is_only_table(self) -> bool:
        """Whether the parent folder has metadata files, and all of them are of this table."""
        folder = self._root.rpartition("/")[0]
        try:
            files, _ = self._stores.of(folder).level(folder)
        except OSError:
            return False
        paths = [file.path for file in files if is_metadata_json(file.path)]
        return {file.uuid for file in read_metadata_files(self._stores, paths)} == {self._own}

    def _read(self, path: str) -> Any:
        try:
            return read_record(self._stores, path)
        except FileNotFoundError:
            # Another run has deleted it since it was listed.
            return None


def _is_record(path: str) -> bool:
    return path.endswith(("/" + LISTING, journals.SUFFIX))


def _parsed_run(run_id: str, path: str, record: Any) -> QuarantinedRun:
    moved = tuple(MovedFile(*row) for row in record["files"])
    folder = split_location(path.rpartition("/")[0])
    for file in moved:
        if relative_to(folder, split_location(file.aside)) in (None, ""):
            raise IcebergCompactError(
                f"{path} lists {file.aside}, which is outside its folder",
                hint="Nothing was deleted. Move the listing away: it was changed by hand or is damaged.",
            )
    # Earlier versions wrote no state: their runs count as finished.
    finished = bool(record.get("finished", True))
    return QuarantinedRun(run_id, path, record["moved_at_ms"], record["delete_after_ms"], moved, finished)
