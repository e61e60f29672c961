"""What a decision about the queue costs with 10,000 queued trials: in one experiment, and in as many experiments.

Milliseconds of processor time; the limit is for each single decision.
"""

from __future__ import annotations

import argparse
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.frame import Figure, Row, median, number, run
from dethpc.config.experiment import ExperimentConfig
from dethpc.domain.attempts.end_report import EndReport
from dethpc.domain.states import RunState
from dethpc.engine import ClusterState, events, step
from dethpc.engine.events import QueueChange
from dethpc.engine.queueing.dispatch_order import in_order
from dethpc.engine.queueing.nice import PendingJob
from dethpc.engine.queueing.pools import Rules
from dethpc.searcher.methods import build

TRIALS, TIMES, LIMIT = 10_000, 200, 10.0


def filled(kind: Any, experiments: int) -> ClusterState:
    state = ClusterState(build, {"main": Rules(kind)})
    each = TRIALS // experiments
    searcher = {"name": "random", "metric": "loss", "smaller_is_better": True, "max_trials": each}
    for n in range(experiments):
        stored = {
            "name": "queued",
            "entrypoint": "train",
            "searcher": {**searcher, "max_concurrent_trials": each},
            "hyperparameters": {"lr": 0.1},
            "resources": {
                "slots_per_trial": 2 ** (n % 4),
                "resource_pool": "main",
                "priority": n % 50 + 1,
                "weight": n % 5 + 1,
            },
        }
        step(
            state,
            events.CreateExperiment(
                "me", ExperimentConfig.from_json(stored), "", "", n, str(uuid.UUID(int=n)), True, float(n)
            ),
        )
    return state


def decisions(state: ClusterState) -> dict[str, Callable[[int], None]]:
    clock = 100_000.0

    def start(n: int) -> None:
        run = in_order(state, "main", clock + n)[0]
        step(state, events.Submitted(run.id, str(n), clock + n))
        step(state, events.AttemptStarted(run.id, 0, ["n0"], None, 0, clock + n))

    def end(n: int) -> None:
        run = next(run for run in state.runs.values() if run.state is RunState.RUNNING)
        step(state, events.AttemptEnded(run.id, 0, EndReport(finished=True, exit_code=0), None, clock + TIMES + n))

    def move(n: int) -> None:
        ids = [e.id for e in state.active()]
        step(state, events.UpdateQueue([QueueChange(ids[n % len(ids)], ahead_of=ids[(n * 7 + 1) % len(ids)])], clock))

    def look(n: int) -> None:
        waiting = {run.id: PendingJob(5000 - i, 0) for i, run in enumerate(state.live.pending.get("main", {}).values())}
        nodes = [(n % 3, 8)] * 200
        step(state, events.QueueSeen({"main": nodes}, {"main": 8}, waiting, clock + n))

    return {"a run starts": start, "a run ends": end, "ahead-of": move, "a look at the scheduler's queue": look}


def rows(options: argparse.Namespace) -> Iterator[Row]:
    for kind in ("priority", "fair_share"):
        slowest = 0.0
        for experiments in (1, 100) if options.quick else (1, 100, TRIALS):
            state = filled(kind, experiments)
            for name, decide in decisions(state).items():
                if name == "ahead-of" and (kind != "priority" or experiments == 1):
                    continue
                took = []
                for n in range(TIMES):
                    began = time.process_time()
                    decide(n)
                    took.append(1000 * (time.process_time() - began))
                slowest = max(slowest, *took)
                words = f"{kind}, experiments: {experiments:,}; {name}"
                yield Row(words, "ms", median(took), note=f"the worst of {TIMES}: {number(max(took))} ms")
        yield Row(f"the slowest of all decisions, {kind}", "ms", Figure(slowest), limit=LIMIT)


if __name__ == "__main__":
    run(__doc__, rows)
