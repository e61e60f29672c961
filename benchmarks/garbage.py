"""How long it takes to decide which checkpoints go when an experiment has ended, by what its policy says.

One experiment of 1,000 trials with 100 checkpoints each, every other one validated at its step. ``decided`` is the pure function
over the rows; ``read and decided`` is what the master does on its own thread, from a SQLite database; ``committed`` is one
decision of the ledger, of 1,000 checkpoints, for which others wait. By processor time, so that other work on the machine does
not count.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from benchmarks.frame import Row, median, run, timed
from dethpc.config.experiment import ExperimentConfig
from dethpc.domain.facts import Checkpoint, Experiment, Metric
from dethpc.domain.states import CheckpointState, State
from dethpc.engine.garbage import Candidate, Policy, unwanted, without
from dethpc.master.experiments.policy import chosen
from dethpc.state import open_store

EACH = 100
LIMIT = 2.0  # seconds, for 100,000
CONFIG = {
    "name": "many",
    "entrypoint": "train",
    "searcher": {"name": "random", "metric": "loss", "max_trials": 1000},
    "hyperparameters": {},
    "resources": {"slots_per_trial": 1, "resource_pool": "main"},
    "checkpoint_storage": {"type": "shared_fs", "host_path": "/checkpoints"},
}


def stored(trials: int) -> tuple[Experiment, list[Checkpoint], list[Metric]]:
    config = ExperimentConfig.from_json(CONFIG).to_json()
    experiment = Experiment(1, "ada", config, "", State.COMPLETED, 0.0, 7, "q", metric="loss", collect=True)
    checkpoints, metrics = [], []
    for n in range(trials * EACH):
        trial, step = n // EACH + 1, n % EACH + 1
        at = float(n)
        resources = {"weights.pt": 1 << 30, "optimizer.pt": 2 << 30, "metadata.json": 100}
        whose = (1, trial, f"1.{trial}.1", 0)
        checkpoints.append(Checkpoint(f"{n:08d}", *whose, 2 * step, CheckpointState.COMPLETED, step, at, {}, resources))
        if n % 2:
            values = {"loss": (n * 7919) % 1000 / 1000, "accuracy": 0.5, "f1": 0.25}
            metrics.append(Metric(f"1.{trial}.1", 0, 2 * step + 1, 1, trial, "validation", step, at, values))
    return experiment, checkpoints, metrics


def rows(options: argparse.Namespace) -> Iterator[Row]:
    trials, rounds = (100, 3) if options.quick else (1000, 7)
    experiment, checkpoints, metrics = stored(trials)
    name, limit = f"{len(checkpoints):,} checkpoints", LIMIT * trials / 1000
    value = {(m.trial_id, m.steps_completed): m.metrics["loss"] for m in metrics}
    candidates = [
        Candidate(c.uuid, c.trial_id, c.reported_at, value.get((c.trial_id, c.steps_completed))) for c in checkpoints
    ]
    spent = [timed(lambda: unwanted(Policy(1, 1, 1), candidates)).cpu for _ in range(rounds)]
    yield Row(f"{name}: decided", "s", median(spent), limit=limit)
    with tempfile.TemporaryDirectory() as folder:
        store = open_store(f"sqlite:///{Path(folder) / 'state.db'}")
        store.commit([experiment, *checkpoints, *metrics])

        def read() -> int:
            with store.read() as connection:
                return len(chosen(connection, experiment, set()))

        spent = [timed(read).cpu for _ in range(rounds)]
        yield Row(f"{name}: read and decided", "s", median(spent), limit=limit, note=f"{read():,} go")
        thousands = [checkpoints[begin : begin + 1000] for begin in range(0, 10_000, 1000)]
        changed = [[without(c, {}, ["**/*"]) for c in some] for some in thousands]
        spent = [timed(partial(store.commit, some)).cpu for some in changed]
        yield Row("1,000 of them: committed", "s", median(spent), note="one decision")
        store.close()


if __name__ == "__main__":
    run(__doc__, rows)
