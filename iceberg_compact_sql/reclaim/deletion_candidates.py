"""Removes files from a planned deletion that are needed, in any spelling of their path."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import MutableMapping

from iceberg_compact_sql.reclaim.reachability import NeededFile
from iceberg_compact_sql.redaction import masked_logger
from iceberg_compact_sql.storage.same_file import loose_key, needed_keys

_log = masked_logger(__name__)


class DeletionCandidates:
    """Removes needed files from the candidates of a deletion, which are keyed by `stored_key`.

    A candidate is removed if the needed path is the same object, leads to it through symbolic links, or may be the
    same file in another spelling. In doubt the file is kept, and `report` logs it.
    """

    def __init__(self, candidates: MutableMapping[str, NeededFile]) -> None:
        self._candidates = candidates
        self._by_loose_key: dict[str, list[str]] = defaultdict(list)
        for key in candidates:
            self._by_loose_key[loose_key(key)].append(key)
        self._doubts: list[tuple[str, str]] = []

    def keep(self, needed_path: str) -> None:
        """Take a needed file out of the candidates."""
        for key in needed_keys(needed_path):
            self._candidates.pop(key, None)
            for similar in self._by_loose_key.get(loose_key(key), ()):
                if (file := self._candidates.pop(similar, None)) is not None:
                    self._doubts.append((file.path, needed_path))

    def report(self) -> None:
        """Log the files that were kept only because a kept snapshot may name them in another spelling."""
        if self._doubts:
            path, needed_path = self._doubts[0]
            _log.warning(
                "%d expired files are kept: kept snapshots name paths that may be the same files in another spelling, "
                "such as %s for %s",
                len(self._doubts),
                needed_path,
                path,
            )
