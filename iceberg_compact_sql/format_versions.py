"""What each version of Iceberg's table format allows, and which versions we write.

The specification's appendix "Format version changes" is the source. A rule that depends on the version is asked here,
never by comparing numbers elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass

from iceberg_compact_sql.errors import UnsupportedError


@dataclass(frozen=True, slots=True)
class FormatVersion:
    """The rules of one format version."""

    number: int
    # Manifest entries carry sequence numbers, and a retried commit gets a new one. Version 1 has neither.
    sequence_numbers: bool
    # Delete files, and manifests of content "deletes".
    delete_files: bool
    # Deletion vectors replace position delete files; rows keep `_row_id` and `_last_updated_sequence_number`.
    deletion_vectors: bool
    row_lineage: bool
    # A date column may become a timestamp column.
    date_becomes_timestamp: bool
    # Whether our files, manifests, snapshots and table metadata keep every rule of the version.
    writable: bool


_VERSIONS = {
    1: FormatVersion(
        1,
        sequence_numbers=False,
        delete_files=False,
        deletion_vectors=False,
        row_lineage=False,
        date_becomes_timestamp=False,
        writable=True,
    ),
    2: FormatVersion(
        2,
        sequence_numbers=True,
        delete_files=True,
        deletion_vectors=False,
        row_lineage=False,
        date_becomes_timestamp=False,
        writable=True,
    ),
    3: FormatVersion(
        3,
        sequence_numbers=True,
        delete_files=True,
        deletion_vectors=True,
        row_lineage=True,
        date_becomes_timestamp=True,
        writable=True,
    ),
}
NEWEST_WRITABLE = max(number for number, version in _VERSIONS.items() if version.writable)


def rules_of(number: int) -> FormatVersion:
    """Return the rules of a version; a version that is not known yet is an UnsupportedError.

    >>> rules_of(1).sequence_numbers
    False
    """
    version = _VERSIONS.get(number)
    if version is None:
        raise UnsupportedError(
            f"format version {number} is not supported", hint=f"Versions 1 to {max(_VERSIONS)} are known."
        )
    return version


def is_writable(number: int) -> bool:
    """Whether our commits keep the rules of this version."""
    version = _VERSIONS.get(number)
    return version is not None and version.writable


def require_writable(number: int, table: str | None = None) -> None:
    """Raise UnsupportedError unless our commits keep the rules of this version."""
    if not is_writable(number):
        subject = f"table '{table}' has format version {number}" if table else f"the table has format version {number}"
        raise UnsupportedError(
            f"{subject}, whose rules are not known",
            argument="table" if table else None,
            value=table,
            hint=f"Versions 1 to {NEWEST_WRITABLE} are supported.",
        )
