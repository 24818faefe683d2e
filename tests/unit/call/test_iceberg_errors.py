"""The errors of Spark and Iceberg for wrong arguments; tests/integration/java compares them with the real ones."""

from __future__ import annotations

import pickle
from decimal import Decimal
from typing import Any

import pytest

from iceberg_compact_sql.call.binding import GivenArgument, bind
from iceberg_compact_sql.call.iceberg_errors import as_iceberg_error, prefix_conflicts
from iceberg_compact_sql.errors import (
    IcebergCompactError,
    IcebergError,
    IcebergKind,
    InvalidArgumentError,
    RewriteFailedError,
    UnsupportedError,
)
from iceberg_compact_sql.procedures.registry import names


def shown_error(procedure: str, *given: GivenArgument) -> IcebergError:
    with pytest.raises(IcebergCompactError) as caught:
        bind(names()[procedure], given, now_ms=0, time_zone=lambda: "UTC", called_as=procedure)
    error = as_iceberg_error(caught.value, procedure)
    assert error is not None
    return error


@pytest.mark.parametrize(
    ("given", "condition", "sentence"),
    [
        ((), "REQUIRED_PARAMETER_NOT_FOUND", "because the parameter named `table` is required"),
        (
            (GivenArgument("t"), GivenArgument("t", "table")),
            "DUPLICATE_ROUTINE_PARAMETER_ASSIGNMENT.BOTH_POSITIONAL_AND_NAMED",
            "to the same parameter name `table`. A positional argument and named argument both",
        ),
        (
            (GivenArgument("t", "table"), GivenArgument("t", "TABLE")),
            "DUPLICATE_ROUTINE_PARAMETER_ASSIGNMENT.DOUBLE_NAMED_ARGUMENT_REFERENCE",
            "to the same parameter name `TABLE`. More than one named argument",
        ),
        (
            (GivenArgument("t"), GivenArgument(1, "wher")),
            "UNRECOGNIZED_PARAMETER_NAME",
            "argument named `wher`, but this routine",
        ),
        ((GivenArgument("t"),) * 9, "WRONG_NUM_ARGS.WITHOUT_SUGGESTION", "parameters but the actual number is 9."),
        (
            (GivenArgument("t"), GivenArgument("x", "branch"), GivenArgument("soon", "rewrite_all")),
            "CAST_INVALID_INPUT",
            'cast to "BOOLEAN"',
        ),
    ],
)
def test_wrong_arguments_have_the_conditions_of_spark(
    given: tuple[GivenArgument, ...], condition: str, sentence: str
) -> None:
    error = shown_error("rewrite_data_files", *given)
    assert error.kind is IcebergKind.ANALYSIS
    assert error.condition == condition
    assert sentence in error.text
    assert error.text.startswith(f"[{condition}] ")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            {"foo": "1", "min-input-files": "2", "bar": "2"},
            "Cannot use options [bar, foo], they are not supported by the action or the rewriter BIN-PACK",
        ),
        ({"min-input-files": "-1"}, "'min-input-files' is set to -1 but must be > 0"),
        ({"delete-ratio-threshold": "2"}, "'delete-ratio-threshold' is set to 2.0 but must be <= 1"),
        ({"min-input-files": "x"}, 'For input string: "x"'),
    ],
)
def test_wrong_options_have_the_sentences_of_iceberg(options: dict[str, str], sentence: str) -> None:
    error = shown_error("rewrite_data_files", GivenArgument("t"), GivenArgument(options, "options"))
    assert (error.kind, error.text) == (IcebergKind.ILLEGAL_ARGUMENT, sentence)


def test_null_for_the_table_is_not_a_missing_argument() -> None:
    error = shown_error("rewrite_data_files", GivenArgument(None, "table"))
    assert (error.kind, error.text) == (IcebergKind.ILLEGAL_ARGUMENT, "Parameter 'table' is not set")


def test_values_of_another_type_name_both_types() -> None:
    error = shown_error("expire_snapshots", GivenArgument("t"), GivenArgument(Decimal("2.2")))
    assert error.condition == "DATATYPE_MISMATCH.UNEXPECTED_INPUT_TYPE"
    assert 'requires the "TIMESTAMP" type, however "2.2" has the type "DECIMAL(2,1)".' in error.text


def test_a_shown_error_keeps_our_sentence_and_survives_pickling() -> None:
    error = InvalidArgumentError("no such column", procedure="rewrite_data_files", argument="where", value="c2 = 1")
    iceberg_error = as_iceberg_error(error, "rewrite_data_files")
    assert iceberg_error is not None
    error.show_as(iceberg_error)
    assert str(error) == "Cannot parse predicates in where option: c2 = 1\nrewrite_data_files: no such column"
    copy: Any = pickle.loads(pickle.dumps(error))
    assert copy.detail == "no such column"


def test_failures_that_iceberg_does_not_have_stay_ours() -> None:
    assert as_iceberg_error(RewriteFailedError("a group failed"), "rewrite_data_files") is None
    without_gc = as_iceberg_error(UnsupportedError("no", argument="gc.enabled"), "remove_orphan_files")
    assert without_gc == IcebergError(
        "Cannot delete orphan files: GC is disabled (deleting files may corrupt other tables)", IcebergKind.VALIDATION
    )


def test_conflicting_prefixes_are_shown_as_pairs_of_schemes_and_authorities() -> None:
    error = prefix_conflicts([("file://", "file1://"), ("s3://a", "s3://b"), ("file://", "file://localhost")])
    assert error.kind is IcebergKind.VALIDATION
    assert error.message.endswith("Conflicting authorities/schemes: [(file1, file), (b, a), (localhost, null)].")


@pytest.mark.parametrize(
    ("given", "condition", "sentence"),
    [
        (GivenArgument(2, "stream_results"), "DATATYPE_MISMATCH.UNEXPECTED_INPUT_TYPE", '"2" has the type "INT"'),
        (GivenArgument(["x"], "snapshot_ids"), "DATATYPE_MISMATCH.UNEXPECTED_INPUT_TYPE", 'type "ARRAY<STRING>"'),
        (GivenArgument(True, "older_than"), "DATATYPE_MISMATCH.UNEXPECTED_INPUT_TYPE", '"true" has the type "BOOLEAN"'),
        (GivenArgument("x", "retain_last"), "CAST_INVALID_INPUT", 'cannot be cast to "INT"'),
    ],
)
def test_wrong_types_have_the_conditions_of_spark(given: GivenArgument, condition: str, sentence: str) -> None:
    error = shown_error("expire_snapshots", GivenArgument("t"), given)
    assert (error.condition, sentence in error.message) == (condition, True)
    # Spark's error for a malformed number is a NumberFormatException, which is an IllegalArgumentException.
    assert (error.kind is IcebergKind.ILLEGAL_ARGUMENT) is (condition == "CAST_INVALID_INPUT")


def test_an_order_that_cannot_be_read_has_the_sentence_of_iceberg() -> None:
    error = as_iceberg_error(InvalidArgumentError("no", argument="sort_order", value="c1 none"), "rewrite_data_files")
    assert error == IcebergError("Unable to parse sortOrder: c1 none")
