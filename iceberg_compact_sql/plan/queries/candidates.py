"""Layouts that could suit the queries of a table, and what each would save and cost."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from iceberg_compact_sql.plan.cost import Prices, Throughput
from iceberg_compact_sql.plan.queries.filters import Filter, Predicate, predicates
from iceberg_compact_sql.plan.queries.simulate import Curve, Sample, bloom_share, meets

# Reading and clustering, in seconds of one core for each byte; the first where the log does not say.
_READ_SECONDS = 0.025 / 1024**2
_WRITE_SECONDS = 0.1 / 1024**2
# Bytes clustered for each byte that arrives, to keep a table clustered (max_depth 4).
_AMPLIFICATION = 7.0
_MOST_COLUMNS = 5


@dataclass(frozen=True)
class Asked:
    """One recorded filter: how often it ran, the bytes that it planned, and the rows that it kept."""

    filter: Filter = field(repr=False)
    scans: int = 1
    bytes: int = 0
    kept: int | None = None
    rows: int | None = None


@dataclass(frozen=True, kw_only=True)
class Workload:
    """The recorded filters of a table over some days; `cpu_seconds` of the stages that scanned `read_bytes`."""

    asked: Sequence[Asked]
    days: float = 1.0
    cpu_seconds: float = 0.0
    read_bytes: int = 0

    @property
    def unhelpable_scans(self) -> int:
        """How many scans have no filter that bounds of files can help."""
        return sum(each.scans for each in self.asked if not any(map(_is_useful, predicates(each.filter))))

    @property
    def scans(self) -> int:
        return sum(each.scans for each in self.asked)

    def uses(self) -> dict[str, int]:
        """Return how many scans filter each column in a way that bounds can help, most first."""
        counts: dict[str, int] = {}
        for each in self.asked:
            for column in {p.column for p in predicates(each.filter) if _is_useful(p)}:
                counts[column] = counts.get(column, 0) + each.scans
        return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


@dataclass(frozen=True)
class Layout:
    """A candidate: `kind` is order, sort, hilbert, partition, bucket or bloom; `detail` is the number of buckets."""

    kind: str
    columns: tuple[str, ...]
    detail: str = ""

    @property
    def simplicity(self) -> int:
        """0 is the simplest: of candidates that are about as good, the simplest wins."""
        kinds = {"order": 0, "sort": len(self.columns), "bloom": 1, "partition": 2, "bucket": 3}
        return kinds.get(self.kind, 1 + len(self.columns))


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a layout would do: the share of the table that a scan reads, bytes saved, dollars, and days to pay off."""

    layout: Layout
    share: float
    share_today: float
    saved_bytes_a_day: float
    once_dollars: float
    dollars_a_day: float
    net_dollars_a_day: float

    @property
    def payback_days(self) -> float | None:
        """Return the days until the savings exceed the price; None if they never do."""
        return self.once_dollars / self.net_dollars_a_day if self.net_dollars_a_day > 0 else None

    @property
    def value(self) -> float:
        return 30 * self.net_dollars_a_day - self.once_dollars


@dataclass(frozen=True, kw_only=True)
class TableSize:
    """What the prices depend on: files and bytes now, and the bytes that arrive on a day."""

    files: int
    data_bytes: int
    arriving_bytes_a_day: float = 0.0


def layouts(
    workload: Workload,
    sample: Sample,
    *,
    own_order: tuple[str, ...] = (),
    time_columns: Collection[str] = (),
) -> list[Layout]:
    """Return the candidates over the columns that filters use most."""
    top = [column for column in workload.uses() if column in sample.places][:_MOST_COLUMNS]
    found = [Layout("order", own_order)] if own_order and all(c in sample.places for c in own_order) else []
    found += [Layout("sort", (column,)) for column in top]
    found += [Layout("sort", pair) for pair in itertools.permutations(top[:3], 2)]
    found += [Layout("hilbert", some) for count in (2, 3) for some in itertools.combinations(top[:4], count)]
    found += [Layout("partition", (column,)) for column in top if column in time_columns]
    equal = [column for column in top if _equality_only(workload, column)]
    found += [Layout("bucket", (column,), "16") for column in equal]
    found += [Layout("bloom", (column,)) for column in equal]
    return found


def evaluate(
    layout: Layout,
    workload: Workload,
    sample: Sample,
    today: Sequence[float],
    size: TableSize,
    prices: Prices,
    curve: Curve,
    day_of: Mapping[str, Sequence[int]] | None = None,
) -> Outcome | None:
    """Return what a layout would save; None if it does not suit the table. `today` is the share of each filter now."""
    shares = _shares(layout, workload, sample, today, size.files, curve, day_of or {})
    if shares is None:
        return None
    weights = np.array([each.scans for each in workload.asked], np.float64)
    then, now = np.array(shares), np.array(today)
    saved = float((weights * (now - then)).sum()) / workload.days * size.data_bytes
    core_dollars = Throughput().memory_gb_per_core * prices.gb_second
    read_seconds = workload.cpu_seconds / workload.read_bytes if workload.read_bytes else 0.0
    read_price = (read_seconds or _READ_SECONDS) * core_dollars
    write_price = _WRITE_SECONDS * core_dollars
    amplification = _AMPLIFICATION if layout.kind in ("order", "sort", "hilbert") else 0.0
    a_day = size.arriving_bytes_a_day * amplification * write_price
    return Outcome(
        layout=layout,
        share=float((weights * then).sum() / weights.sum()),
        share_today=float((weights * now).sum() / weights.sum()),
        saved_bytes_a_day=saved,
        once_dollars=size.data_bytes * write_price,
        dollars_a_day=a_day,
        net_dollars_a_day=saved * read_price - a_day,
    )


def ranked(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Return the best first; of those within 6 % of the best share, the simplest is the best."""
    order = sorted(outcomes, key=lambda outcome: (-outcome.value, outcome.layout.simplicity, outcome.layout.columns))
    if not order:
        return []
    limit = order[0].share + 0.06 * (order[0].share_today - order[0].share)
    close = [outcome for outcome in order if outcome.share <= limit and outcome.value > 0]
    best = min(close, key=lambda outcome: (outcome.layout.simplicity, -outcome.value), default=order[0])
    return [best, *(outcome for outcome in order if outcome is not best)]


def _shares(
    layout: Layout,
    workload: Workload,
    sample: Sample,
    today: Sequence[float],
    files: int,
    curve: Curve,
    day_of: Mapping[str, Sequence[int]],
) -> list[float] | None:
    if layout.kind == "bloom":
        return [
            share * _bloom(each, layout.columns[0], share * files)
            for each, share in zip(workload.asked, today, strict=True)
        ]
    if layout.kind == "bucket":
        buckets = int(layout.detail)
        if buckets > files:
            return None
        return [min(1.0, _values(each.filter, layout.columns[0]) / buckets or 1.0) for each in workload.asked]
    groups = None
    if layout.kind == "partition":
        groups = np.array(day_of[layout.columns[0]], np.int64)
        if len(np.unique(groups)) > files:
            return None
    order = sample.order(() if groups is not None else layout.columns, curve if layout.kind == "hilbert" else None)
    bounds = sample.bounds(order, files, groups)
    count = len(next(iter(bounds.values())).low)
    return [float(meets(each.filter, bounds, sample.scales, count).mean()) for each in workload.asked]


def _bloom(asked: Asked, column: str, files_met: float) -> float:
    """Return the share of the planned files that is still read; 1 where row groups were skipped already."""
    if not _values(asked.filter, column) or asked.kept is None or not asked.rows or asked.kept > asked.rows / 2:
        return 1.0
    return bloom_share(math.ceil(files_met), asked.kept / max(1, asked.scans))


def _values(filter_: Filter, column: str) -> int:
    """Return how many values a filter compares a column with by equality, if every row must equal one of them."""
    parts = filter_.parts if not isinstance(filter_, Predicate) else (filter_,)
    counts = [
        len(part.values)
        for part in parts
        if isinstance(part, Predicate) and part.column == column and part.kind in ("equality", "in")
    ]
    return min(counts, default=0)


def _equality_only(workload: Workload, column: str) -> bool:
    kinds = {p.kind for each in workload.asked for p in predicates(each.filter) if p.column == column}
    return bool(kinds) and kinds <= {"equality", "in", "null", "not null"}


def _is_useful(predicate: Predicate) -> bool:
    return predicate.kind in ("equality", "in", "range", "prefix")
