"""What the reconciler knows of live runs and of their scheduler; all of its parts read and change it."""

from __future__ import annotations

from dataclasses import dataclass

from dethpc.master.parts import Parts
from dethpc.master.submitting.arrays import Arrays
from dethpc.master.submitting.holds import Holds
from dethpc.master.watching.foreign_runs import ForeignRuns
from dethpc.master.watching.live_runs import Cadence, LiveRuns, Pace


@dataclass(frozen=True, slots=True)
class Watch:
    """One per reconciler. Its thread changes it; what each of these lets other threads do stands with it."""

    runs: LiveRuns
    cadence: Cadence
    holds: Holds
    foreign: ForeignRuns
    arrays: Arrays

    @classmethod
    def begin(cls, parts: Parts, pace: Pace, foreign: ForeignRuns) -> Watch:
        """As a master starts: it knows nothing but the rows."""
        return cls(LiveRuns(parts.ledger), Cadence(pace), Holds(pace), foreign, Arrays(parts.home, parts.cluster_id))
