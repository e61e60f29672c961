"""The figures of a simulation."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from dethpc.config.experiment import ExperimentConfig
from dethpc.domain.facts import Experiment, Trial
from dethpc.domain.states import State


@dataclass(frozen=True)
class Best:
    """A validation that was better than all before it."""

    at: float  # seconds after the start
    value: float
    trial_index: int
    steps: int


@dataclass(frozen=True)
class Result:
    """What one experiment took. Times are seconds of virtual time after the start."""

    experiment: Experiment
    config: ExperimentConfig
    trials: list[Trial]
    jobs: int  # submissions to the scheduler
    attempts: int
    makespan: float
    slot_seconds: float
    steps: int  # trained in all, those that were trained again included
    best: list[Best] = field(default_factory=list)
    slots_over_time: list[tuple[float, int]] = field(default_factory=list)  # from then on that many slots were held
    waited: float = 0.0  # seconds that jobs waited for slots, summed
    length: int = 0  # steps of a whole trial
    validation_period: int = 0  # steps

    def count(self, state: State) -> int:
        return sum(trial.state is state for trial in self.trials)

    @property
    def stopped_early(self) -> int:
        """Trials that the searcher stopped before their full length."""
        return sum(t.state is State.COMPLETED and t.steps_completed < self.length for t in self.trials)

    @property
    def slot_hours(self) -> float:
        return self.slot_seconds / 3600

    @property
    def peak_slots(self) -> int:
        return max((slots for _, slots in self.slots_over_time), default=0)

    def slots_in(self, parts: int) -> list[float]:
        """The mean number of slots held in each of ``parts`` equal parts of the makespan."""
        if not self.makespan or not self.slots_over_time:
            return [0.0] * parts
        width = self.makespan / parts
        sums = [0.0] * parts
        ends = [at for at, _ in self.slots_over_time[1:]] + [self.makespan]
        for (begin, slots), end in zip(self.slots_over_time, ends, strict=True):
            part = min(parts - 1, int(begin / width))
            while slots and begin < end and part < parts:
                until = min(end, (part + 1) * width) if part < parts - 1 else end
                sums[part] += slots * max(0.0, until - begin)
                begin, part = until, part + 1
        return [total / width for total in sums]

    def to_json(self, parts: int = 100) -> dict[str, Any]:
        """camelCase, as the REST API spells things; slots over time in ``parts`` equal parts."""
        return {
            "state": f"STATE_{self.experiment.state.value}",
            "reason": self.experiment.reason,
            "trials": len(self.trials),
            "trialsCompleted": self.count(State.COMPLETED),
            "trialsStoppedEarly": self.stopped_early,
            "trialsErrored": self.count(State.ERROR),
            "jobs": self.jobs,
            "attempts": self.attempts,
            "steps": self.steps,
            "makespanSeconds": self.makespan,
            "slotHours": self.slot_hours,
            "waitedSeconds": self.waited,
            "peakSlots": self.peak_slots,
            "best": [
                {"seconds": b.at, "value": b.value, "trialIndex": b.trial_index, "steps": b.steps} for b in self.best
            ],
            "slotsOverTime": {"seconds": self.makespan / parts, "slots": self.slots_in(parts)},
        }
