"""The folders and files that a search for orphans lists.

A search pickles a `VisiblePaths` for its tasks, so this module imports only packages that executors have.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyiceberg.table.metadata import TableMetadata


@dataclass(frozen=True, slots=True)
class VisiblePaths:
    """Returns whether a level of a path, relative to the root, is searched.

    Names with `_` or `.` in front belong to running jobs and are not searched, except the folders of partitions.
    `quarantine` is never searched. It is plain data, because tasks on the cluster get it too.
    """

    quarantine: str | None
    partition_prefixes: tuple[str, ...] = ()

    @classmethod
    def of(cls, metadata: TableMetadata, quarantine: str | None) -> VisiblePaths:
        prefixes = (
            f"{partition.name}="
            for spec in metadata.partition_specs
            for partition in spec.fields
            if partition.name.startswith(("_", "."))
        )
        return cls(quarantine, tuple(prefixes))

    def __call__(self, relative: str) -> bool:
        if relative == self.quarantine:
            return False
        name = relative.rsplit("/", 1)[-1]
        return not name.startswith(("_", ".")) or name.startswith(self.partition_prefixes)
