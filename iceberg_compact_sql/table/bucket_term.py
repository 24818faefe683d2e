"""`bucket(n, column)` as a term of a filter: pyiceberg's own unbound terms are columns only."""

from __future__ import annotations

from typing import Any

from pyiceberg.expressions import BoundReference, UnboundTerm
from pyiceberg.schema import Schema
from pyiceberg.transforms import BoundTransform, BucketTransform
from pyiceberg.typedef import StructProtocol
from pyiceberg.types import IntegerType, NestedField


class BucketTerm(UnboundTerm):
    """The bucket of a column, not yet bound to a schema; `name` is the column."""

    def __init__(self, name: str, buckets: int) -> None:
        self.name = name
        self.transform: BucketTransform[Any] = BucketTransform(buckets)

    def bind(self, schema: Schema, case_sensitive: bool = True) -> BoundBucket:
        field = schema.find_field(self.name, case_sensitive=case_sensitive)
        return BoundBucket(BoundReference(field, schema.accessor_for_field(field.field_id)), self.transform)

    @property
    def as_bound(self) -> type[BoundBucket]:
        return BoundBucket

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BucketTerm) and (self.name, self.transform) == (other.name, other.transform)

    def __hash__(self) -> int:
        return hash((self.name, str(self.transform)))

    def __repr__(self) -> str:
        return f"bucket({self.transform.num_buckets}, {self.name})"


class BoundBucket(BoundTransform):
    """The bucket of a column of a schema: a number, under the id of the column that it is made of."""

    def __init__(self, source: BoundReference, transform: BucketTransform[Any]) -> None:
        super().__init__(source, transform)
        number = NestedField(source.field.field_id, source.field.name, IntegerType(), required=False)
        self._number = BoundReference(number, source.accessor)

    def ref(self) -> BoundReference:
        return self._number

    def eval(self, struct: StructProtocol) -> Any:
        source = self.term.ref()
        return self.transform.transform(source.field.field_type)(source.eval(struct))
