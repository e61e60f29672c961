"""Search decisions per second and memory per trial, at the searcher and through the engine.

    python benchmarks/decisions.py [TRIALS ...]

One experiment of so many trials (1,000, 10,000 and 100,000 unless told otherwise) under adaptive_asha, all of them open at once.
Rates are by processor time, so that other work on the machine does not count.
Every trial reports at each rung until it is stopped; the order is random. The searcher's figure counts calls of ``validated``
with what they make it remember; the engine's counts ``step(state, Reported(...))`` with one validation each, rows and all.
Memory is what tracemalloc sees: the searcher alone, the engine's whole state with a run and an attempt for every trial, and what
is left of that when every trial has ended.
"""

from __future__ import annotations

import gc
import random
import sys
import time
import tracemalloc
from collections.abc import Iterator

from dethpc.config.experiment import ExperimentConfig
from dethpc.domain.end_report import EndReport
from dethpc.domain.facts import Run
from dethpc.domain.ids import task_id
from dethpc.domain.reports import Report
from dethpc.domain.states import RunState
from dethpc.engine import ClusterState, events, step
from dethpc.searcher.base import Create, Note, Searcher, Stop
from dethpc.searcher.methods import build

LENGTHS = (4, 16, 64, 256, 1024)
SPACE = {
    "lr": {"type": "log", "minval": -5, "maxval": -1, "base": 10},
    "width": {"type": "int", "minval": 8, "maxval": 512},
}


def config(trials: int) -> ExperimentConfig:
    searcher = {
        "name": "adaptive_asha",
        "metric": "loss",
        "smaller_is_better": True,
        "max_trials": trials,
        "max_concurrent_trials": trials,
        "time_metric": "batches",
        "max_time": LENGTHS[-1],
    }
    resources = {"slots_per_trial": 1, "resource_pool": "main"}
    stored = {"entrypoint": "train", "searcher": searcher, "hyperparameters": SPACE, "resources": resources}
    return ExperimentConfig.from_json(stored)


def reports(trials: int) -> Iterator[tuple[int, int, float]]:
    """(trial, length, metric), every trial at every rung, wave after wave in random order."""
    rng = random.Random(0)
    order = list(range(trials))
    for length in LENGTHS:
        rng.shuffle(order)
        for index in order:
            yield index, length, rng.random()


def searched(trials: int) -> tuple[float, Searcher]:
    """Decisions per second of the searcher alone, and it."""
    configured = config(trials)
    search = build(configured.searcher, configured.space, 1)
    for action in search.start():
        assert isinstance(action, Create)
        search.created(action.index, action.hparams, action.search)
    stopped = bytearray(search.created_count)
    decisions, spent = 0, 0.0
    for index, length, metric in reports(search.created_count):
        if stopped[index]:
            continue
        began = time.process_time()
        for action in search.validated(index, length, metric):
            if isinstance(action, Note):
                search.noted(action.index, action.kind, action.data)
            elif isinstance(action, Stop):
                stopped[index] = True
        spent += time.process_time() - began
        decisions += 1
    return decisions / spent, search


def stepped(trials: int) -> tuple[float, ClusterState]:
    """Reports per second through the engine, and its state."""
    state = ClusterState(build)
    job = "00000000-0000-4000-8000-000000000001"
    step(state, events.CreateExperiment("me", config(trials), "", "", 7, job, False, 0.0))
    runs = []
    for trial in list(state.experiments[1].trials):
        # Straight to a run that is at work: the way there is not what is measured.
        run = Run(f"1.{trial.id}.1", 1, task_id(1, trial.id), 1, RunState.RUNNING, 0.0, 1, "main")
        state.apply(run)
        step(state, events.AttemptStarted(run.id, 0, ["n0"], None, 0, 0.0))
        runs.append(run.id)
    done, spent = 0, 0.0
    sequence = [0] * len(runs)
    for index, length, metric in reports(len(runs)):
        trial = state.experiments[1].trials[index]
        if trial.state.stopping:
            continue
        sequence[index] += 1
        data = {"group": "validation", "steps_completed": length, "metrics": {"loss": metric}}
        event = events.Reported(runs[index], 0, [Report(sequence[index], 0.0, "metrics", data)], 0.0)
        began = time.process_time()
        rows = step(state, event)
        spent += time.process_time() - began
        assert rows, "a report that nothing comes of is not measured"
        done += 1
    return done / spent, state


def memory(trials: int) -> tuple[float, float, float]:
    """Bytes a trial: the searcher alone, the engine's state of live trials, and of trials that have ended."""
    tracemalloc.start()
    empty = _traced()
    _, search = searched(trials)
    alone = _traced() - empty
    del search
    empty = _traced()
    _, state = stepped(trials)
    live = _traced() - empty
    for run in list(state.runs.values()):
        step(state, events.AttemptEnded(run.id, 0, EndReport(finished=True, exit_code=0), None, 1.0))
    ended = _traced() - empty
    tracemalloc.stop()
    return alone / trials, live / trials, ended / trials


def _traced() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


def main() -> None:
    sizes = [int(word) for word in sys.argv[1:]] or [1_000, 10_000, 100_000]
    print(f"{'':>8} {'searcher':>12} {'engine':>12} {'searcher':>10} {'engine, B/trial':>21}")
    print(f"{'trials':>8} {'decisions/s':>12} {'reports/s':>12} {'B/trial':>10} {'live':>10} {'ended':>10}")
    for trials in sizes:
        gc.collect()
        alone, _ = searched(trials)
        gc.collect()
        through, _ = stepped(trials)
        small = memory(trials)
        print(
            f"{trials:8d} {alone:12,.0f} {through:12,.0f} {small[0]:10,.0f} {small[1]:10,.0f} {small[2]:10,.0f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
