"""The cost of a search, computed from its preview (``experiments.preview``)."""

from __future__ import annotations

from typing import Any, Dict, NamedTuple, Optional

Json = Dict[str, Any]


class SearchCost(NamedTuple):
    """``total`` and ``longest``: of all trials, and of the longest, in ``unit``; None where trials train to their own end."""

    trials: int
    total: Optional[int]
    longest: Optional[int]
    unit: str

    @property
    def words(self) -> str:
        line = f"{self.trials} trial{'s' if self.trials != 1 else ''}"
        if self.total is not None and self.longest:
            alone = self.total / self.longest
            line += f", {self.total} {self.unit} in total, as much as {alone:.4g} trials of {self.longest} {self.unit}"
        return line

    def slot_seconds(self, other: SearchCost, spent: float) -> Optional[float]:
        """What this one costs at the pace of another, which took ``spent`` slot-seconds; None where they cannot be compared."""
        if self.total is not None and other.total and self.unit == other.unit:
            return spent * self.total / other.total
        if self.total is None and other.total is None and other.trials:
            return spent * self.trials / other.trials
        return None


def of(preview: Json) -> SearchCost:
    trials = preview["summary"]["trials"]
    count = sum(trial["count"] for trial in trials)
    if not trials or any(trial["unit"]["maxLength"] for trial in trials):
        return SearchCost(count, None, None, "")
    total = sum(trial["count"] * trial["unit"]["value"] for trial in trials)
    return SearchCost(count, total, max(trial["unit"]["value"] for trial in trials), trials[0]["unit"]["name"] or "")
