"""The only package that uses private names of pyiceberg; it also fixes pyiceberg's reading of Avro."""

from iceberg_compact_sql.pyiceberg_internals.avro import named_types as _names  # noqa: F401 - the import applies the fix
from iceberg_compact_sql.pyiceberg_internals.avro.doubles import AvroFile

__all__ = ["AvroFile"]
