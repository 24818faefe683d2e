"""Index of the files that a table's metadata names; finds a listed file in it under any spelling."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from typing import NamedTuple

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from iceberg_compact_sql.reclaim.reachability import ManifestRef, Reachability, statistics_of
from iceberg_compact_sql.reclaim.record_files import metadata_root
from iceberg_compact_sql.storage.locations import Location, join, relative_to, split_location
from iceberg_compact_sql.storage.same_file import (
    forget_links,
    is_ambiguous,
    link_targets,
    loose_path,
    resolved_path,
)

DEFAULT_EQUAL_SCHEMES = {"s3a": "s3", "s3n": "s3"}
ANY_PREFIX = "://"


class PathMatch(Enum):
    """What the metadata says about a listed file."""

    NEEDED = "needed"
    UNKNOWN = "unknown"
    # The same path under another scheme or authority.
    OTHER_PREFIX = "other prefix"
    # The same path if `%20`, `+`, `//`, `.`, `..` or composed letters are decoded in another way.
    OTHER_SPELLING = "other spelling"


class Identity(NamedTuple):
    """The key for comparing files: `scheme://authority`, the path, and the path with all spellings made equal."""

    prefix: str
    path: str
    loose_path: str


class KnownFiles:
    """Index of the paths that metadata names. Memory: one string for each path; prefixes are shared.

    Scheme and authority are compared as in Iceberg: ignoring case, after `equal_schemes` and `equal_authorities` were
    applied to both sides. A part that the metadata leaves out matches everything. So `hdfs:/lake/x` in a manifest
    protects the listed `hdfs://namenode/lake/x`. Local files are compared by `stored_key`, and a named symbolic link
    protects its target too.
    """

    def __init__(
        self, equal_schemes: Mapping[str, str] | None = None, equal_authorities: Mapping[str, str] | None = None
    ) -> None:
        forget_links()
        self._schemes = {**DEFAULT_EQUAL_SCHEMES, **_split_names(equal_schemes or {})}
        self._authorities = _split_names(equal_authorities or {})
        self._prefixes: dict[tuple[str, str], str] = {}
        self._paths: dict[str, str | frozenset[str]] = {}
        self._loose: set[str] = set()
        self._snapshots: set[int] = set()
        self._manifests: set[str] = set()

    def __len__(self) -> int:
        return len(self._paths)

    def add(self, location: str) -> None:
        for prefix, path, loose in self.needed_identities(location):
            known = self._paths.setdefault(path, prefix)
            if known is not prefix:
                both = {prefix, known} if isinstance(known, str) else {prefix, *known}
                self._paths[path] = frozenset(both) if len(both) > 1 else prefix
            if loose != path:
                self._loose.add(loose)

    def add_table(self, table: Table, reader: Reachability, *, with_content: bool = True) -> list[ManifestRef]:
        """Add everything that the table's metadata names; on newer metadata only new snapshots and manifests are read.

        Returns the new manifests. Without `with_content` they are not read: the caller reads them elsewhere.
        """
        metadata = table.metadata
        self.add(table.metadata_location)
        for folder in (metadata_root(metadata), join(metadata.location, "metadata")):
            # A hadoop catalog finds the table by this file, regardless of `write.metadata.path`.
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

    def named(self) -> Iterator[Identity]:
        """Return every path in the index, once for each of its prefixes."""
        for path, known in self._paths.items():
            for prefix in (known,) if isinstance(known, str) else known:
                yield Identity(prefix, path, loose_path(path))

    def match(self, location: str) -> PathMatch:
        """Return what the metadata says about a file; `OTHER_*` means that it may be needed."""
        parsed = split_location(location)
        listed = self.identity(location)
        match = self._match(listed)
        if match is PathMatch.UNKNOWN and listed.path != parsed.path:
            # The path without resolved symbolic links may be named too.
            match = self._match(Identity(listed.prefix, parsed.path, loose_path(parsed.path)))
        return match

    def _match(self, listed: Identity) -> PathMatch:
        known = self._paths.get(listed.path)
        if known is not None:
            names = (known,) if isinstance(known, str) else known
            return PathMatch.NEEDED if any(covers(name, listed.prefix) for name in names) else PathMatch.OTHER_PREFIX
        ambiguous = is_ambiguous(listed.path)
        if listed.loose_path in self._loose or (ambiguous and listed.loose_path in self._paths):
            return PathMatch.OTHER_SPELLING
        return PathMatch.UNKNOWN

    def identity(self, location: str) -> Identity:
        """Return the key of a listed file."""
        parsed = split_location(location)
        path = resolved_path(parsed.local_path) if _on_disk(parsed) else parsed.path
        return Identity(self._prefix(parsed.scheme, parsed.authority), path, loose_path(path))

    def needed_identities(self, location: str) -> Iterator[Identity]:
        """Return the keys that a named file protects: its own, and those of symbolic links on a local disk."""
        parsed = split_location(location)
        # A path without a scheme is on the default file system, which is unknown here.
        prefix = ANY_PREFIX if parsed.path == location else self._prefix(parsed.scheme, parsed.authority)
        paths = [parsed.path]
        if _on_disk(parsed):
            resolved = resolved_path(parsed.local_path)
            paths = [resolved, *link_targets(resolved)]
            if resolved != parsed.path:
                paths.append(parsed.path)
        elif parsed.names_no_bucket:
            # No store can read `s3:/bucket/key`, but it can only mean that key of that bucket.
            paths.append("/" + parsed.key.partition("/")[2])
        for path in paths:
            yield Identity(prefix, path, loose_path(path))

    def relative(self, root: str, location: str) -> str | None:
        """Return the path relative to a root, or None outside it, after equal schemes and authorities were applied."""
        return relative_to(self._as_equal(split_location(root)), self._as_equal(split_location(location)))

    def prefixes(self, location: str) -> Iterable[str]:
        """Return the schemes and authorities under which the metadata names this path."""
        known = self._paths.get(self.identity(location).path, ())
        return (known,) if isinstance(known, str) else tuple(sorted(known))

    def _as_equal(self, parsed: Location) -> Location:
        scheme, _, authority = self._prefix(parsed.scheme, parsed.authority).partition(ANY_PREFIX)
        return Location(scheme, authority, parsed.path)

    def _prefix(self, scheme: str, authority: str) -> str:
        prefix = self._prefixes.get((scheme, authority))
        if prefix is None:
            equal_scheme = self._schemes.get(scheme.lower(), scheme.lower())
            equal_authority = self._authorities.get(authority.lower(), authority.lower())
            prefix = self._prefixes[(scheme, authority)] = f"{equal_scheme}{ANY_PREFIX}{equal_authority}"
        return prefix


def covers(named: str, listed: str) -> bool:
    """Whether a prefix in the metadata matches the prefix of a listed file; a missing part matches all.

    >>> covers("hdfs://", "hdfs://namenode"), covers("hdfs://namenode", "hdfs://")
    (True, False)
    """
    return named in (listed, ANY_PREFIX) or (named.endswith(ANY_PREFIX) and listed.startswith(named))


def _on_disk(parsed: Location) -> bool:
    return parsed.is_local and not parsed.authority


def _split_names(groups: Mapping[str, str]) -> dict[str, str]:
    """Return `{'s3a,s3n': 's3'}` with one entry for each name, in lower case."""
    return {name.strip().lower(): value.strip().lower() for names, value in groups.items() for name in names.split(",")}
