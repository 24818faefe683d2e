"""The files that a table's metadata names, and whether a listed file is one of them under any spelling."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from urllib.parse import unquote_plus

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from iceberg_compact_sql.reclaim.quarantine import metadata_root
from iceberg_compact_sql.reclaim.reachability import ManifestRef, Reachability, statistics_of
from iceberg_compact_sql.storage.locations import join, real_folder, split_location

DEFAULT_EQUAL_SCHEMES = {"s3a": "s3", "s3n": "s3"}
_AMBIGUOUS = re.compile(r"[%+ ]|//|/\./|[^\x00-\x7f]")


class Standing(Enum):
    """What the metadata says of a listed file."""

    NEEDED = "needed"
    UNKNOWN = "unknown"
    # The same path under another scheme or authority.
    OTHER_PREFIX = "other prefix"
    # The same path once `%20`, `+`, `//`, `/./` or composed letters are read in another way.
    OTHER_SPELLING = "other spelling"


class ValidFiles:
    """An index of paths; memory is one text for each path, scheme and authority being shared."""

    def __init__(
        self, equal_schemes: Mapping[str, str] | None = None, equal_authorities: Mapping[str, str] | None = None
    ) -> None:
        self._schemes = {**DEFAULT_EQUAL_SCHEMES, **_one_by_one(equal_schemes or {})}
        self._authorities = _one_by_one(equal_authorities or {})
        self._prefixes: dict[tuple[str, str], str] = {}
        self._paths: dict[str, str | frozenset[str]] = {}
        self._loose: set[str] = set()
        self._snapshots: set[int] = set()
        self._manifests: set[str] = set()

    def __len__(self) -> int:
        return len(self._paths)

    def add(self, location: str) -> None:
        prefix, path = self._split(location)
        known = self._paths.setdefault(path, prefix)
        if known is not prefix:
            both = {prefix, known} if isinstance(known, str) else {prefix, *known}
            self._paths[path] = frozenset(both) if len(both) > 1 else prefix
        if _AMBIGUOUS.search(path):
            self._loose.add(_loose(path))

    def add_table(self, table: Table, reader: Reachability, *, with_content: bool = True) -> list[ManifestRef]:
        """Everything that the table's metadata names; called again on fresh metadata it reads only what is new.

        Without content the manifests are given back unread, for somebody else to read.
        """
        metadata = table.metadata
        self.add(table.metadata_location)
        for folder in (metadata_root(metadata), join(metadata.location, "metadata")):
            # A catalog without a database finds the table by it, whatever `write.metadata.path` says.
            self.add(join(folder, "version-hint.text"))
        for entry in metadata.metadata_log:
            self.add(entry.metadata_file)
        for file in statistics_of(metadata):
            self.add(file.path)
        new = [snapshot for snapshot in metadata.snapshots if snapshot.snapshot_id not in self._snapshots]
        return self._add_snapshots(new, reader, with_content)

    def _add_snapshots(self, snapshots: list[Snapshot], reader: Reachability, with_content: bool) -> list[ManifestRef]:
        for snapshot in snapshots:
            self.add(snapshot.manifest_list)
        new = {k: m for k, m in reader.manifests_of(snapshots).items() if k not in self._manifests}
        for manifest in new.values():
            self.add(manifest.path)
        for file in reader.content_of(new.values() if with_content else ()):
            self.add(file.path)
        self._manifests.update(new)
        self._snapshots.update(snapshot.snapshot_id for snapshot in snapshots)
        return list(new.values())

    def locations(self) -> Iterator[str]:
        """Every path in the index under each of its prefixes."""
        for path, known in self._paths.items():
            for prefix in (known,) if isinstance(known, str) else known:
                yield prefix + path

    def standing(self, location: str) -> Standing:
        """What the metadata says of a file; `OTHER_*` means doubt."""
        prefix, path = self._split(location)
        known = self._paths.get(path)
        if known is not None:
            same = known == prefix if isinstance(known, str) else prefix in known
            return Standing.NEEDED if same else Standing.OTHER_PREFIX
        ambiguous = _AMBIGUOUS.search(path) is not None
        if not ambiguous and not self._loose:
            return Standing.UNKNOWN
        loose = _loose(path)
        if loose in self._loose or (ambiguous and loose in self._paths):
            return Standing.OTHER_SPELLING
        return Standing.UNKNOWN

    def identity(self, location: str) -> tuple[str, str, str]:
        """What a file is compared by: scheme, authority and path; the path alone; the path in its loosest reading."""
        prefix, path = self._split(location)
        return prefix + path, path, _loose(path)

    def prefixes(self, location: str) -> Iterable[str]:
        """Under which schemes and authorities the metadata names this path."""
        known = self._paths.get(self._split(location)[1], ())
        return (known,) if isinstance(known, str) else tuple(known)

    def _split(self, location: str) -> tuple[str, str]:
        scheme, authority, path = split_location(location)
        if scheme == "file":
            # Without `//`, `.`, `..` and symbolic links in its folders: one text for one file.
            folder, slash, name = path.rpartition("/")
            path = f"{real_folder(folder)}{slash}{name}"
        key = (scheme, authority)
        prefix = self._prefixes.get(key)
        if prefix is None:
            prefix = f"{self._schemes.get(scheme, scheme)}://{self._authorities.get(authority, authority)}"
            self._prefixes[key] = prefix
        return prefix, path


def _loose(path: str) -> str:
    return re.sub(r"/(\.?/)+", "/", unicodedata.normalize("NFC", unquote_plus(path)))


def _one_by_one(groups: Mapping[str, str]) -> dict[str, str]:
    """`{'s3a,s3n': 's3'}` as one entry for each name."""
    return {name.strip(): value.strip() for names, value in groups.items() for name in names.split(",")}
