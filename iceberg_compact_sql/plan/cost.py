"""Estimates the requests, bytes, seconds and dollars of a rewrite, from named constants."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from iceberg_compact_sql.catalogs.session_view import SETTING_PREFIX
from iceberg_compact_sql.errors import InvalidArgumentError

_MB = 1024**2
# A file of at most this size is read with one request, and written with one.
_WHOLE_FILE_BYTES = 8 * _MB
# A larger one is asked for its size and its footer. Copied row groups are read in blocks, after their page indexes;
# decoded ones in larger ranges. An upload has a first and a last request.
_REQUESTS_TO_OPEN = 2
_COPIED_BLOCK_BYTES = 4 * _MB
_DECODED_RANGE_BYTES = 16 * _MB
_REQUESTS_TO_UPLOAD = 2
_PART_BYTES = 8 * _MB
# metadata.json and the manifest list are read, and pyiceberg checks that the new metadata.json does not exist.
_READS_OF_A_RUN = 3
# metadata.json, the manifest list, and one manifest with the new files.
_WRITES_OF_A_RUN = 3


@dataclass(frozen=True, slots=True)
class Prices:
    """Dollars for requests and for compute; the settings `spark.iceberg_compact_sql.price.*` change them."""

    get_per_1000: float = 0.0004
    put_per_1000: float = 0.005
    gb_second: float = 0.0000166667

    @classmethod
    def from_settings(cls, conf: Mapping[str, str]) -> Prices:
        """Read the prices of a session; refuse a setting that is not a number of 0 or more."""
        given: dict[str, float] = {}
        for name in ("get_per_1000", "put_per_1000", "gb_second"):
            setting = f"{SETTING_PREFIX}price.{name}"
            text = conf.get(setting)
            if text is None:
                continue
            try:
                price = float(text)
            except ValueError:
                price = -1.0
            if not 0 <= price < float("inf"):
                raise InvalidArgumentError(
                    f"setting {setting} is {text!r} but must be a number of dollars, 0 or more", value=text
                )
            given[name] = price
        return cls(**given)


@dataclass(frozen=True, slots=True)
class Throughput:
    """How fast this cluster rewrites. The defaults are those of one core of a small machine."""

    decode_bytes_per_second: float = 40 * _MB
    copy_bytes_per_second: float = 400 * _MB
    seconds_per_file: float = 0.01
    seconds_per_group: float = 0.1
    # Output files of one group that are written at the same time.
    parallel_outputs: int = 1
    memory_gb_per_core: float = 2.0


@dataclass(frozen=True, slots=True)
class RunRequests:
    """Reads and writes of metadata; a share of them may be a fraction."""

    reads: float = 0.0
    writes: float = 0.0


def metadata_requests(manifests: int, groups: int) -> RunRequests:
    """Return one group's share of the metadata requests of a run that reads and rewrites these manifests."""
    groups = max(1, groups)
    return RunRequests((manifests + _READS_OF_A_RUN) / groups, (manifests + _WRITES_OF_A_RUN) / groups)


@dataclass(frozen=True, slots=True)
class Work:
    """The bytes and files that the rewrite of one group reads and writes."""

    data_files: int
    data_bytes: int
    copied_bytes: int = 0
    delete_files: int = 0
    delete_bytes: int = 0
    outputs: int = 1
    # This group's share of the requests for metadata, which a run makes once for all its groups.
    metadata: RunRequests = RunRequests()


@dataclass(frozen=True, slots=True)
class Estimate:
    """Elapsed seconds of a group, and dollars for its requests and its compute.

    `base_seconds` are those of the constants alone; `request_dollars` is the part of `dollars` for requests.
    """

    seconds: float
    dollars: float
    base_seconds: float = 0.0
    request_dollars: float = 0.0


def compute_dollars(seconds: float, prices: Prices, throughput: Throughput) -> float:
    """Return the price of this many seconds on one core with its memory."""
    return seconds * throughput.memory_gb_per_core * prices.gb_second


def estimate(work: Work, prices: Prices, throughput: Throughput, pace: float | None = None) -> Estimate:
    """Estimate the time and the price of a rewrite; both grow with bytes and with requests.

    `pace` is learned from past runs: how much longer they took than the constants say.
    """
    decoded_bytes = work.data_bytes - work.copied_bytes + work.delete_bytes
    core_seconds = (
        decoded_bytes / throughput.decode_bytes_per_second
        + work.copied_bytes / throughput.copy_bytes_per_second
        + (work.data_files + work.delete_files + work.outputs) * throughput.seconds_per_file
    )
    parallel_outputs = max(1, min(throughput.parallel_outputs, work.outputs))
    reads = (
        work.metadata.reads
        + _file_reads(work.data_files, work.data_bytes, work.copied_bytes)
        + _file_reads(work.delete_files, work.delete_bytes)
    )
    writes = work.metadata.writes + _file_writes(work.outputs, work.data_bytes)
    requests = reads / 1000 * prices.get_per_1000 + writes / 1000 * prices.put_per_1000
    base = core_seconds / parallel_outputs + throughput.seconds_per_group
    seconds = base if pace is None else base * pace
    paid_seconds = core_seconds if pace is None else seconds
    return Estimate(seconds, requests + compute_dollars(paid_seconds, prices, throughput), base, requests)


def _file_reads(files: int, total_bytes: int, copied_bytes: int = 0) -> int:
    if total_bytes <= files * _WHOLE_FILE_BYTES:
        return files
    copied, decoded = copied_bytes / files, (total_bytes - copied_bytes) / files
    blocks = 1 + math.ceil(copied / _COPIED_BLOCK_BYTES) if copied_bytes else 0
    return files * (_REQUESTS_TO_OPEN + blocks + math.ceil(decoded / _DECODED_RANGE_BYTES))


def _file_writes(files: int, total_bytes: int) -> int:
    if total_bytes <= files * _PART_BYTES:
        return files
    return files * (_REQUESTS_TO_UPLOAD + math.ceil(total_bytes / files / _PART_BYTES))
