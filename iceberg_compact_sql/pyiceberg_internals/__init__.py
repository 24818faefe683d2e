"""The only place that touches private names of pyiceberg, and the one that mends its reading of Avro."""

from iceberg_compact_sql.pyiceberg_internals.avro import named_types as _names  # noqa: F401 - mends by being imported
from iceberg_compact_sql.pyiceberg_internals.avro.doubles import AvroFile

__all__ = ["AvroFile"]
