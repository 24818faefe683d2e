"""Budgets of a run: what it may read, cost and take, and what of that is used up."""

from __future__ import annotations

from dataclasses import dataclass

from iceberg_compact_sql.units import format_bytes, format_duration


@dataclass(frozen=True, slots=True)
class Price:
    """What a group or a table takes from the budgets, by its estimate."""

    input_bytes: int
    dollars: float
    seconds: float


@dataclass(slots=True)
class Budget:
    """The limits of a run and what it has used; None means no limit."""

    max_bytes: int | None = None
    max_cost: float | None = None
    time_budget_ms: int | None = None
    used_bytes: int = 0
    used_dollars: float = 0.0
    used_seconds: float = 0.0

    def spend(self, price: Price) -> str | None:
        """Take the price from the budgets; if one of them does not allow it, take nothing and return the reason."""
        reason = self._refusal(price)
        if reason is None:
            self.used_bytes += price.input_bytes
            self.used_dollars += price.dollars
            self.used_seconds += price.seconds
        return reason

    def _refusal(self, price: Price) -> str | None:
        if self.max_bytes is not None and self.used_bytes + price.input_bytes > self.max_bytes:
            return (
                f"{format_bytes(price.input_bytes)} on top of {format_bytes(self.used_bytes)} "
                f"would exceed max_bytes {format_bytes(self.max_bytes)}"
            )
        if self.max_cost is not None and self.used_dollars + price.dollars > self.max_cost:
            return f"${price.dollars:.6f} on top of ${self.used_dollars:.6f} would exceed max_cost ${self.max_cost:g}"
        used_ms, seconds = self.used_seconds * 1000, price.seconds
        if self.time_budget_ms is not None and self.used_seconds + seconds > self.time_budget_ms / 1000:
            return (
                f"{format_duration(seconds * 1000)} on top of {format_duration(used_ms)} "
                f"would exceed time_budget {format_duration(self.time_budget_ms)}"
            )
        return None
