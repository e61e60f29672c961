"""``started.json``, the start report of an attempt."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Mapping, Optional

from dethpc.domain.attempts.end_report import moment, plain_text
from dethpc.domain.reports import MOST_STEPS


@dataclass(frozen=True)
class Started:
    """docs/run-directory.md has the fields in words."""

    job_id: str = ""
    nodes: list[str] = field(default_factory=list)
    resumed_from: Optional[str] = None  # checkpoint uuid
    resumed_steps: int = 0
    prior: dict[int, int] = field(default_factory=dict)  # earlier attempt -> its last report that counts
    at: Optional[float] = None  # seconds since the epoch

    @classmethod
    def from_json(cls, obj: Mapping[str, Any]) -> Started:
        """Reads what every release wrote: what is missing, or is not what it should be, counts as not said."""
        nodes, prior, resumed = obj.get("nodes"), obj.get("prior"), obj.get("resumed_from")
        job_id, steps = obj.get("job_id"), obj.get("resumed_steps")
        return cls(
            job_id=str(job_id)
            if isinstance(job_id, (str, int)) and job_id and plain_text(job_id) == str(job_id)
            else "",
            nodes=[plain_text(node) for node in nodes] if isinstance(nodes, list) else [],
            resumed_from=plain_text(resumed) if isinstance(resumed, str) else None,
            resumed_steps=steps if type(steps) is int and 0 <= steps <= MOST_STEPS else 0,
            prior=_prior(prior) if isinstance(prior, dict) else {},
            at=moment(obj.get("at")),
        )


def _prior(obj: Mapping[str, Any]) -> dict[int, int]:
    return {int(k): seq for k, seq in obj.items() if k.isdecimal() and type(seq) is int and seq >= 0}
