"""The only place that touches private names of pyiceberg, and the one that mends its reading of Avro."""

from iceberg_compact_sql.table.pyiceberg_internals import avro_names as _names  # noqa: F401 - mends by being imported
from iceberg_compact_sql.table.pyiceberg_internals.avro_doubles import AvroFile

__all__ = ["AvroFile"]
