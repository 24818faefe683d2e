"""A FileIO that lets pyiceberg choose between pyarrow and fsspec for each scheme."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import pyarrow.fs as pafs
from pyiceberg.io import PY_IO_IMPL, SCHEMA_TO_FILE_IO, FileIO, load_file_io
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.typedef import EMPTY_DICT, Properties

from iceberg_compact_sql.storage.kinds.gcs import GCS_SCHEMES, gcs_file_system
from iceberg_compact_sql.storage.locations import S3_SCHEMES, Location
from iceberg_compact_sql.storage.request_timeouts import timeouts_of
from iceberg_compact_sql.storage.s3.credentials import with_profile_credentials


class FileIOByScheme(PyArrowFileIO):
    """The FileIO of a catalog whose settings name no FileIO class."""

    def __init__(self, properties: Properties = EMPTY_DICT) -> None:
        # Remove the name of this class: the settings go to tasks, which choose again.
        super().__init__({name: value for name, value in properties.items() if name != PY_IO_IMPL})
        self.fs_by_scheme = lru_cache(self._file_system)

    def chosen_for(self, location: Location) -> FileIO:
        """Return the FileIO that pyiceberg chooses for a location: this one where it is pyarrow's."""
        if location.scheme not in SCHEMA_TO_FILE_IO:
            # pyiceberg would warn and choose by the warehouse; pyarrow says that it does not know the scheme.
            return self
        chosen = load_file_io(dict(self.properties), f"{location.scheme}://{location.authority}{location.path}")
        return self if type(chosen) is PyArrowFileIO else chosen

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.fs_by_scheme = lru_cache(self._file_system)

    def _file_system(self, scheme: str, netloc: str | None = None) -> pafs.FileSystem:
        properties: Mapping[str, str] = self.properties
        if scheme in GCS_SCHEMES:
            return gcs_file_system(properties)
        if scheme in S3_SCHEMES:
            limits = timeouts_of(properties)
            properties = {
                "s3.connect-timeout": str(limits.connect_seconds),
                "s3.request-timeout": str(limits.answer_seconds),
                **with_profile_credentials(properties),
            }
        return PyArrowFileIO(dict(properties)).fs_by_scheme(scheme, netloc)
