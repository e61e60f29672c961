"""Search decisions per second and memory per trial, at the searcher and through the engine.

One experiment of so many trials under adaptive_asha, all of them open at once.
Rates are by processor time, so that other work on the machine does not count.
Every trial reports at each rung until it is stopped; the order is random. The searcher's figure counts calls of ``validated``
with what they make it remember; the engine's counts ``step(state, Reported(...))`` with one validation each, rows and all, and
with 100 reports of training each, as journals bring them. A validation changes four rows, and half of them stop their trial.
The start of a search is the event of its creation through the ledger into SQLite and the change log.
Memory is what tracemalloc sees: the searcher alone, the engine's whole state with a run and an attempt for every trial, and what
is left of that when every trial has ended.
"""

from __future__ import annotations

import argparse
import gc
import random
import time
import tracemalloc
from collections.abc import Iterator

from benchmarks.creation import SPACE, begun
from benchmarks.frame import Figure, Row, median, run
from dethpc.config.experiment import ExperimentConfig
from dethpc.domain.attempts.end_report import EndReport
from dethpc.domain.facts import Metric, Run
from dethpc.domain.ids import task_id
from dethpc.domain.reports import Report
from dethpc.domain.states import RunState
from dethpc.engine import ClusterState, events, step
from dethpc.searcher.base import Create, Note, Searcher, Stop
from dethpc.searcher.methods import build

LENGTHS = (4, 16, 64, 256, 1024)
BRACKETS = 3
BATCH = 100


def config(trials: int) -> ExperimentConfig:
    searcher = {
        "name": "adaptive_asha",
        "metric": "loss",
        "smaller_is_better": True,
        "max_trials": trials,
        "max_concurrent_trials": BRACKETS * trials,  # shared evenly, and no bracket gets more than it has trials
        "time_metric": "batches",
        "max_time": LENGTHS[-1],
    }
    resources = {"slots_per_trial": 1, "resource_pool": "main"}
    stored = {"entrypoint": "train", "searcher": searcher, "hyperparameters": SPACE, "resources": resources}
    return ExperimentConfig.from_json(stored)


def waves(trials: int) -> Iterator[tuple[int, list[tuple[int, float]]]]:
    """For each length (trial, metric) of every trial, in random order. The clock is read once a wave: it takes 2 us."""
    rng = random.Random(0)
    order = list(range(trials))
    for length in LENGTHS:
        rng.shuffle(order)
        yield length, [(index, rng.random()) for index in order]


def searched(trials: int) -> tuple[float, Searcher]:
    """Decisions per second of the searcher alone, and it."""
    configured = config(trials)
    search = build(configured.searcher, configured.space, 1)
    for action in search.start():
        assert isinstance(action, Create)
        search.created(action.index, action.hparams, action.search)
    stopped = bytearray(search.created_count)
    decisions, spent = 0, 0.0
    for length, wave in waves(search.created_count):
        left = [each for each in wave if not stopped[each[0]]]
        began = time.process_time()
        for index, metric in left:
            for action in search.validated(index, length, metric):
                if isinstance(action, Note):
                    search.noted(action.index, action.kind, action.data)
                elif isinstance(action, Stop):
                    stopped[index] = True
        spent += time.process_time() - began
        decisions += len(left)
    return decisions / spent, search


def at_work(trials: int) -> tuple[ClusterState, list[str]]:
    """All trials of an experiment with their runs."""
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
    assert len(runs) == trials
    return state, runs


def trained(trials: int) -> float:
    """Reports of training per second through the engine, as they come out of journals."""
    state, runs = at_work(trials)
    spent = 0.0
    for id in runs:
        metrics = [
            Report(n, 0.0, "metrics", {"group": "training", "steps_completed": n, "metrics": {"loss": 1 / n}})
            for n in range(1, BATCH + 1)
        ]
        event = events.Reported(id, 0, metrics, 0.0)
        began = time.process_time()
        rows = step(state, event)
        spent += time.process_time() - began
        assert sum(isinstance(row, Metric) for row in rows) == BATCH
    return trials * BATCH / spent


def stepped(trials: int) -> tuple[float, ClusterState]:
    """Validations per second through the engine, and its state."""
    state, runs = at_work(trials)
    done, spent = 0, 0.0
    for seq, (length, wave) in enumerate(waves(len(runs)), 1):
        told = []
        for index, metric in wave:
            if state.experiments[1].trials[index].state.stopping:
                continue
            data = {"group": "validation", "steps_completed": length, "metrics": {"loss": metric}}
            told.append(events.Reported(runs[index], 0, [Report(seq, 0.0, "metrics", data)], 0.0))
        began = time.process_time()
        changed = sum(bool(step(state, event)) for event in told)
        spent += time.process_time() - began
        assert changed == len(told), "a report that nothing comes of is not measured"
        done += changed
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
    for id in list(state.runs):
        step(state, events.AttemptEnded(id, 0, EndReport(finished=True, exit_code=0), None, 1.0))
    ended = _traced() - empty
    tracemalloc.stop()
    return alone / trials, live / trials, ended / trials


def _traced() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


def rows(options: argparse.Namespace) -> Iterator[Row]:
    rounds = 3 if options.quick else 7
    for trials in [1_000] if options.quick else [1_000, 10_000, 100_000]:
        size = f"{trials:,} trials"
        decided = median([searched(trials)[0] for _ in range(rounds)])
        yield Row(f"decisions of the searcher, {size}", "a second", decided, limit=200_000, rule=">=")
        reported = median([stepped(trials)[0] for _ in range(rounds)])
        yield Row(f"validations through the engine, {size}", "a second", reported, limit=10_000, rule=">=")
        told = median([trained(min(trials, 1_000)) for _ in range(rounds)])
        yield Row(f"reports of training through the engine, {size}", "a second", told, limit=100_000, rule=">=")
        alone, live, ended = memory(trials)
        yield Row(f"the searcher's memory of a trial, {size}", "bytes", Figure(alone))
        yield Row(f"memory of a live trial, {size}", "bytes", Figure(live), limit=3_000)
        yield Row(f"memory of an ended trial of an open experiment, {size}", "bytes", Figure(ended))
    yield from begun(rounds)


if __name__ == "__main__":
    run(__doc__, rows)
