"""A day of a busy site: other users' jobs, several of our experiments in two pools, preemption, failures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dethpc.config.experiment import ExperimentConfig
from dethpc.domain.facts import Attempt, Experiment, Row
from dethpc.domain.states import State
from dethpc.engine.queueing.pools import Rules
from dethpc.simulator.faults import Faults
from dethpc.simulator.simulation import Master, Simulation
from dethpc.simulator.site import Pace, Site
from dethpc.simulator.traffic import Manners, Traffic
from dethpc.simulator.workloads import PowerLaw

SPACE: Mapping[str, Any] = {"lr": {"type": "log", "minval": -3, "maxval": -1, "base": 10}}

# pool, slots of a trial, priority, weight, share of the trials, hour of the day
EXPERIMENTS: tuple[tuple[str, int, int, float, float, float], ...] = (
    ("main", 1, 42, 1, 0.25, 0.0),
    ("main", 2, 42, 1, 0.12, 0.5),
    ("main", 8, 42, 1, 0.04, 0.5),
    ("main", 16, 42, 1, 0.02, 1.0),
    ("main", 1, 10, 1, 0.10, 3.0),
    ("main", 4, 60, 1, 0.07, 0.0),
    ("shared", 1, 42, 1, 0.20, 0.0),
    ("shared", 1, 42, 3, 0.20, 0.0),
)


@dataclass(frozen=True)
class Day:
    """What came of it. Times in seconds."""

    trials: int
    completed: int
    attempts: int
    hours: float
    traffic: Traffic
    longest_wait: Mapping[int, float]  # slots of a trial -> the longest that a run of that size waited for its start
    shares: float  # slot-seconds of weight 3 over those of weight 1 in the pool that shares, while both had trials left
    used: float  # of all slots, by us


def busy_day(
    trials: int = 2000, nodes: int = 24, seed: int = 0, manners: Manners | None = None, weights: bool = True
) -> Day:
    """About ``trials`` trials on ``nodes`` nodes of 8 slots, half of them busy with others' jobs."""
    rules = {"main": Rules("priority"), "shared": Rules("fair_share")}
    simulation = Simulation(
        Site(nodes, 8, load=0.5, load_duration=3600, weights=weights),
        Pace(startup=30, step=1, length=1500, stop=20, spread=0.3, checkpoint_each=2),
        PowerLaw(SPACE, seed),
        seed=seed,
        faults=Faults(node_failure=6 * 86400, preemption=4 * 3600, loss=40 * 3600, user_error=0.005),
        master=Master(rules=rules, manners=manners or Manners()),
    )
    watch = _Watch(simulation)
    ids = []
    for pool, slots, priority, weight, share, hour in sorted(EXPERIMENTS, key=lambda row: row[-1]):
        simulation.run(until=hour * 3600)
        count = max(1, round(trials * share))
        ids.append(
            simulation.create(
                ExperimentConfig.from_json(
                    {
                        "entrypoint": "train",
                        "searcher": {
                            "name": "random",
                            "metric": "loss",
                            "smaller_is_better": True,
                            "max_trials": count,
                            "max_concurrent_trials": count,
                        },
                        "hyperparameters": SPACE,
                        "resources": {
                            "slots_per_trial": slots,
                            "resource_pool": pool,
                            "priority": priority,
                            "weight": weight,
                        },
                    }
                )
            )
        )
    simulation.run()
    results = [simulation.result(id) for id in ids]
    return Day(
        trials=sum(len(result.trials) for result in results),
        completed=sum(result.count(State.COMPLETED) for result in results),
        attempts=sum(result.attempts for result in results),
        hours=simulation.now / 3600,
        traffic=simulation.traffic,
        longest_wait=watch.longest,
        shares=watch.shares(),
        used=sum(result.slot_seconds for result in results) / (simulation.now * nodes * 8),
    )


class _Watch:
    """Looks at what is committed."""

    def __init__(self, simulation: Simulation) -> None:
        self.longest: dict[int, float] = {}
        self._simulation = simulation
        self._had: dict[float, float] = {}
        self._both: dict[float, float] | None = None
        simulation.shell.listeners.append(self._committed)

    def _committed(self, rows: Sequence[Row]) -> None:
        state = self._simulation.shell.state
        for row in rows:
            if isinstance(row, Attempt) and row.number == 0 and row.ended_at is None and row.applied_seq == 0:
                run = state.runs.get(row.run_id)
                if run is not None:
                    waited = row.started_at - run.created_at
                    self.longest[run.slots] = max(self.longest.get(run.slots, 0.0), waited)
            elif isinstance(row, Experiment) and row.pool == "shared" and self._both is None:
                waiting = state.experiments[row.id].waiting
                if not waiting and row.progress > 0:
                    self._both = dict(self._had)
                self._had[row.weight] = row.served * row.weight

    def shares(self) -> float:
        had = self._both or self._had
        return had[3] / had[1]
