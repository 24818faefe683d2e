"""Which manifests and files may hold a row that matches a filter; in doubt, they may."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pyiceberg.conversions import from_bytes
from pyiceberg.expressions import (
    AlwaysFalse,
    AlwaysTrue,
    And,
    BooleanExpression,
    BoundIn,
    BoundPredicate,
    BoundTerm,
    Or,
    Reference,
    UnboundPredicate,
)
from pyiceberg.expressions.literals import Literal
from pyiceberg.expressions.visitors import (
    BooleanExpressionVisitor,
    BoundBooleanExpressionVisitor,
    InclusiveProjection,
    bind,
    expression_evaluator,
    manifest_evaluator,
    visit,
)
from pyiceberg.manifest import ManifestFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record
from pyiceberg.types import IcebergType, PrimitiveType, UUIDType

from iceberg_compact_sql.garbage_collector import garbage_collector_off
from iceberg_compact_sql.table.bucket_term import BoundBucket
from iceberg_compact_sql.table.partition_keys import exact_partition_key

# What pyiceberg's evaluators raise for values of an unexpected type: promoted or damaged ones.
_UNDECIDED = (ValueError, TypeError, KeyError, AttributeError, ArithmeticError, LookupError)
# Writers keep this many characters of a text in its bounds, and not all of them round the upper one up.
_BOUND_CHARACTERS = 16


@dataclass(frozen=True, slots=True)
class ColumnStatistics:
    """Column statistics of one data file, as in its manifest entry."""

    rows: int
    value_counts: Mapping[int, int]
    null_counts: Mapping[int, int]
    nan_counts: Mapping[int, int]
    lower_bounds: Mapping[int, bytes]
    upper_bounds: Mapping[int, bytes]


class FilePruner:
    """Decides for manifests, partitions and files whether they may match a filter; never drops one that does."""

    def __init__(self, where: BooleanExpression, schema: Schema, specs: Mapping[int, PartitionSpec]) -> None:
        self._schema = schema
        self._specs = specs
        with garbage_collector_off():
            self._unbound = _without_uuids(where, schema)
            self._bound = bind(schema, self._unbound, case_sensitive=True)
        self._projected: dict[int, BooleanExpression] = {}
        self._manifests: dict[int, Callable[[ManifestFile], bool]] = {}
        self._partitions: dict[int, Callable[[Record], bool]] = {}
        self._seen: dict[tuple[int, tuple[Any, ...]], bool] = {}
        # The values of each IN in order, by the predicate's id: it lives as long as the filter.
        self._ordered: dict[int, list[Any]] = {}

    def manifest_may_match(self, manifest: ManifestFile) -> bool:
        spec_id = manifest.partition_spec_id
        if spec_id not in self._specs:
            return True
        try:
            if spec_id not in self._manifests:
                spec = self._specs[spec_id]
                self._manifests[spec_id] = manifest_evaluator(spec, self._schema, self._project(spec), True)
            return self._manifests[spec_id](manifest)
        except _UNDECIDED:
            return True

    def partition_may_match(self, spec_id: int, partition: tuple[Any, ...]) -> bool:
        key = (spec_id, exact_partition_key(partition))
        answer = self._seen.get(key)
        if answer is None:
            answer = self._seen[key] = self._evaluate_partition(spec_id, partition)
        return answer

    def file_may_match(self, metrics: ColumnStatistics) -> bool:
        if metrics.rows == 0:
            return False
        return visit(self._bound, _MayMatch(metrics, self._schema, self._ordered))

    def _evaluate_partition(self, spec_id: int, partition: tuple[Any, ...]) -> bool:
        spec = self._specs.get(spec_id)
        if spec is None:
            return True
        try:
            if spec_id not in self._partitions:
                self._partitions[spec_id] = self._partition_evaluator(spec)
            return self._partitions[spec_id](Record(*partition))
        except _UNDECIDED:
            return True

    def _partition_evaluator(self, spec: PartitionSpec) -> Callable[[Record], bool]:
        projected = self._project(spec)
        if isinstance(projected, AlwaysFalse):
            return lambda _: False
        if isinstance(projected, AlwaysTrue) or not spec.fields:
            return lambda _: True
        return expression_evaluator(Schema(*spec.partition_type(self._schema).fields), projected, True)

    def _project(self, spec: PartitionSpec) -> BooleanExpression:
        if spec.spec_id not in self._projected:
            with garbage_collector_off():
                self._projected[spec.spec_id] = _Projection(self._schema, spec, True).project(self._unbound)
        return self._projected[spec.spec_id]


class _Projection(InclusiveProjection):
    """A filter over columns as a filter over partition values; `bucket(n, column)` decides for the same transform."""

    def visit_bound_predicate(self, predicate: BoundPredicate) -> BooleanExpression:
        term = predicate.term
        if not isinstance(term, BoundBucket):
            return super().visit_bound_predicate(predicate)
        result: BooleanExpression = AlwaysTrue()
        for part in self.spec.fields_by_source_id(term.ref().field.field_id):
            projected = part.transform.project(part.name, predicate) if part.transform == term.transform else None
            result = result if projected is None else And(result, projected)
        return result


class _Connectives(BooleanExpressionVisitor[BooleanExpression]):
    """Keeps AND and OR as they are; subclasses change the predicates."""

    def visit_true(self) -> BooleanExpression:
        return AlwaysTrue()

    def visit_false(self) -> BooleanExpression:
        return AlwaysFalse()

    def visit_not(self, child_result: BooleanExpression) -> BooleanExpression:
        # The parser of filters leaves no NOT; another one cannot be decided.
        return AlwaysTrue()

    def visit_and(self, left_result: BooleanExpression, right_result: BooleanExpression) -> BooleanExpression:
        return And(left_result, right_result)

    def visit_or(self, left_result: BooleanExpression, right_result: BooleanExpression) -> BooleanExpression:
        return Or(left_result, right_result)

    def visit_unbound_predicate(self, predicate: UnboundPredicate) -> BooleanExpression:
        return predicate

    def visit_bound_predicate(self, predicate: BoundPredicate) -> BooleanExpression:
        return predicate


class _UnboundWithoutUuids(_Connectives):
    def __init__(self, schema: Schema) -> None:
        self._schema = schema

    def visit_unbound_predicate(self, predicate: UnboundPredicate) -> BooleanExpression:
        kind: IcebergType | None
        if isinstance(predicate.term, Reference):
            # Not bound, for speed: a filter may have thousands of terms.
            kind = self._schema.find_type(predicate.term.name)
        else:
            bound = predicate.bind(self._schema, case_sensitive=True)
            kind = bound.term.ref().field.field_type if isinstance(bound, BoundPredicate) else None
        return AlwaysTrue() if isinstance(kind, UUIDType) else predicate


def _without_uuids(where: BooleanExpression, schema: Schema) -> BooleanExpression:
    """Replace predicates on uuids by true: Java orders uuid bounds as signed numbers and other writers do not."""
    types = (schema.find_type(name) for name in schema.column_names)
    return visit(where, _UnboundWithoutUuids(schema)) if UUIDType() in types else where


class _MayMatch(BoundBooleanExpressionVisitor[bool]):
    """Whether some row of a file may match, from its statistics alone."""

    def __init__(self, metrics: ColumnStatistics, schema: Schema, ordered: dict[int, list[Any]]) -> None:
        self._metrics = metrics
        self._schema = schema
        self._ordered = ordered

    def visit_true(self) -> bool:
        return True

    def visit_false(self) -> bool:
        return False

    def visit_not(self, child_result: bool) -> bool:
        return True

    def visit_and(self, left_result: bool, right_result: bool) -> bool:
        return left_result and right_result

    def visit_or(self, left_result: bool, right_result: bool) -> bool:
        return left_result or right_result

    def visit_is_null(self, term: BoundTerm) -> bool:
        field_id = term.ref().field.field_id
        # Below a struct, writers differ in whether a null parent is counted: use only counts of top-level columns.
        return not (self._metrics.null_counts.get(field_id) == 0 and self._top_level(field_id))

    def visit_not_null(self, term: BoundTerm) -> bool:
        return self._holds_values(term)

    def visit_is_nan(self, term: BoundTerm) -> bool:
        field_id = term.ref().field.field_id
        return self._metrics.nan_counts.get(field_id) != 0 and self._holds_values(term)

    def visit_not_nan(self, term: BoundTerm) -> bool:
        # A null is not NaN, so only a column in which every value is NaN rules a file out.
        field_id = term.ref().field.field_id
        values, nans = self._metrics.value_counts.get(field_id), self._metrics.nan_counts.get(field_id)
        return values is None or nans is None or nans < values

    def visit_less_than(self, term: BoundTerm, literal: Literal[Any]) -> bool:
        lower = self._bound(term, self._metrics.lower_bounds)
        return self._holds_values(term) and (lower is None or lower < literal.value)

    def visit_less_than_or_equal(self, term: BoundTerm, literal: Literal[Any]) -> bool:
        lower = self._bound(term, self._metrics.lower_bounds)
        return self._holds_values(term) and (lower is None or lower <= literal.value)

    def visit_greater_than(self, term: BoundTerm, literal: Literal[Any]) -> bool:
        upper = self._bound(term, self._metrics.upper_bounds)
        return self._holds_values(term) and (upper is None or upper > literal.value)

    def visit_greater_than_or_equal(self, term: BoundTerm, literal: Literal[Any]) -> bool:
        upper = self._bound(term, self._metrics.upper_bounds)
        return self._holds_values(term) and (upper is None or upper >= literal.value)

    def visit_equal(self, term: BoundTerm, literal: Literal[Any]) -> bool:
        return self._holds_values(term) and self._in_range(term, literal.value)

    def visit_not_equal(self, term: BoundTerm, literal: Literal[Any]) -> bool:
        return self._holds_values(term) and self._only_value(term) != literal.value

    def visit_in(self, term: BoundTerm, literals: set[Any]) -> bool:
        return self._holds_values(term) and any(self._in_range(term, value) for value in literals)

    def visit_not_in(self, term: BoundTerm, literals: set[Any]) -> bool:
        return self._holds_values(term) and self._only_value(term) not in literals

    def visit_starts_with(self, term: BoundTerm, literal: Literal[Any]) -> bool:
        prefix = str(literal.value)
        lower = self._bound(term, self._metrics.lower_bounds)
        upper = self._bound(term, self._metrics.upper_bounds)
        if not self._holds_values(term):
            return False
        if isinstance(lower, str) and lower[: len(prefix)] > prefix:
            return False
        # An upper bound shorter than the prefix and equal to its start is below every value with the prefix.
        return not (isinstance(upper, str) and upper < prefix)

    def visit_not_starts_with(self, term: BoundTerm, literal: Literal[Any]) -> bool:
        bounds = (self._bound(term, self._metrics.lower_bounds), self._bound(term, self._metrics.upper_bounds))
        if all(isinstance(bound, str) and bound.startswith(str(literal.value)) for bound in bounds):
            return self._metrics.null_counts.get(term.ref().field.field_id) != 0
        return self._holds_values(term)

    def visit_bound_predicate(self, predicate: BoundPredicate) -> bool:
        try:
            if isinstance(predicate.term, BoundBucket):
                # Bounds of the column say nothing about its buckets.
                return self._holds_values(predicate.term)
            if isinstance(predicate, BoundIn):
                return self._any_in_range(predicate)
            return super().visit_bound_predicate(predicate)
        except _UNDECIDED:
            return True

    def visit_unbound_predicate(self, predicate: UnboundPredicate) -> bool:
        return True

    def _top_level(self, field_id: int) -> bool:
        return any(field.field_id == field_id for field in self._schema.fields)

    def _holds_values(self, term: BoundTerm) -> bool:
        field_id = term.ref().field.field_id
        values, nulls = self._metrics.value_counts.get(field_id), self._metrics.null_counts.get(field_id)
        return not (
            values is not None and nulls is not None and values > 0 and values == nulls and self._top_level(field_id)
        )

    def _only_value(self, term: BoundTerm) -> Any:
        """The value of every row, where the bounds prove that there is only one; else None.

        As in Iceberg: the bounds are equal, and nulls and NaN are counted and absent.
        """
        lower = self._bound(term, self._metrics.lower_bounds)
        if lower is None or lower != self._bound(term, self._metrics.upper_bounds):
            return None
        field_id = term.ref().field.field_id
        if self._metrics.null_counts.get(field_id) != 0:
            return None
        if isinstance(lower, float) and self._metrics.nan_counts.get(field_id) != 0:
            return None
        if isinstance(lower, (str, bytes)) and len(lower) >= _BOUND_CHARACTERS:
            return None
        return lower

    def _in_range(self, term: BoundTerm, value: Any) -> bool:
        lower = self._bound(term, self._metrics.lower_bounds)
        if lower is not None and lower > value:
            return False
        upper = self._bound(term, self._metrics.upper_bounds)
        return upper is None or not upper < value

    def _any_in_range(self, predicate: BoundIn) -> bool:
        """As `visit_in`, by one binary search in the sorted values: lists may be long, and files many."""
        ordered = self._ordered.get(id(predicate))
        if ordered is None:
            ordered = self._ordered[id(predicate)] = sorted(predicate.value_set)
        if not self._holds_values(predicate.term):
            return False
        lower = self._bound(predicate.term, self._metrics.lower_bounds)
        upper = self._bound(predicate.term, self._metrics.upper_bounds)
        start = 0 if lower is None else bisect_left(ordered, lower)
        return start < len(ordered) and (upper is None or ordered[start] <= upper)

    def _bound(self, term: BoundTerm, bounds: Mapping[int, bytes]) -> Any:
        """Return a decoded bound, or None when there is none that can be trusted."""
        field = term.ref().field
        raw = bounds.get(field.field_id)
        # An empty bound may also come from damaged statistics.
        if not raw or not isinstance(field.field_type, PrimitiveType):
            return None
        value = from_bytes(field.field_type, raw)
        return None if isinstance(value, float) and value != value else value
