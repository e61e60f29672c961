"""A home as large as an installation becomes in years, made once and kept under /tmp for ``size.py``.

100,000 trials have ended: 10,000 of them in one search with rungs, which the simulator ran. 10,000 are open, of which 500 run, and
1,000,000 reports of metrics were made.
"""

from __future__ import annotations

import os
import random
import shutil
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from benchmarks.stand_in import StandIn
from dethpc.config.experiment import ExperimentConfig
from dethpc.domain.facts import Attempt, Checkpoint, Experiment, Metric, Row, Run, Task, Trial
from dethpc.domain.ids import task_id
from dethpc.domain.states import AttemptState, CheckpointState, End, RunState, State
from dethpc.engine import ClusterState, events, step
from dethpc.engine.queueing.pools import Rules
from dethpc.rundir.home import Home
from dethpc.searcher.methods import build
from dethpc.simulator import Pace, Site
from dethpc.simulator.memory import MemoryStore
from dethpc.simulator.simulation import Master, Simulation
from dethpc.simulator.workloads import PowerLaw
from dethpc.state import open_store
from dethpc.state.store import SqlStore
from dethpc.state.tables import REVISION

LIVE = 500
BEGAN = 1_700_000_000.0
SPACE = {
    "lr": {"type": "log", "minval": -5, "maxval": 0, "base": 10},
    "layers": {"type": "int", "minval": 1, "maxval": 9},
}


def made(parts: int = 1) -> Home:
    """The home; ``parts``: made so many times smaller."""
    return _kept(f"{REVISION}-all-{parts}", partial(_rows, parts))


def of_one_experiment(parts: int = 1) -> Home:
    """One experiment of 100,000 trials, with 1,500 names of metrics in 1,000,000 reports; ``parts``: with fewer trials."""
    return _kept(f"{REVISION}-one-{parts}", partial(_many_trials, 100_000 // parts))


def _kept(name: str, rows_of: Callable[[], Iterator[Row]]) -> Home:
    def put(store: SqlStore) -> None:
        rows = rows_of()
        while some := list(islice(rows, 20_000)):
            store.commit(some)

    return prepared(name, put)


def prepared(name: str, put: Callable[[SqlStore], None]) -> Home:
    """The home of this name, whose database ``put`` has filled once."""
    folder = Path(f"/tmp/dethpc-size-{os.getuid()}") / name
    home = Home(folder)
    if not (folder / "whole").exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        home.make()
        with open_store(home.database_url) as store:
            put(store)
        (folder / "whole").touch()
    return home


def _rows(parts: int) -> Iterator[Row]:
    state = ClusterState(build, {"default": Rules()})
    yield from _searched(10_000 // parts)
    state.next_experiment_id, state.next_trial_id = 2, 10_000 // parts + 1
    for _ in range(40 // parts):
        yield from _ended(state, 2_000, 9)
    for _ in range(1_000 // parts):
        yield from _ended(state, 10, 9)
    yield from _open(state, 10_000 // parts)


NAMES = 1500


def _many_trials(trials: int) -> Iterator[Row]:
    state = ClusterState(build, {"default": Rules()})
    config = _config("large", {"name": "random", "max_trials": trials, "max_concurrent_trials": trials})
    experiment, created, tasks = _created(state, config)
    end = experiment.created_at + 3000.0
    yield replace(experiment, state=State.COMPLETED, ended_at=end, progress=1.0)
    draw = random.Random(1)
    for trial, task in zip(created, tasks):
        yield replace(task, state=State.COMPLETED, ended_at=end, runs=1)
        for row in _trained(trial, experiment, 10, draw, end, True):
            if isinstance(row, Metric):
                others = {f"layer_{(trial.id + row.seq * 150) % NAMES:04d}": draw.random()}
                row = replace(row, metrics={**row.metrics, **others})
            yield row


def _config(name: str, searcher: dict[str, Any], most: int | None = None, description: str = "") -> ExperimentConfig:
    return ExperimentConfig.from_json(
        {
            "name": name,
            "description": description,
            "entrypoint": "python3 train.py",
            "searcher": {"metric": "loss", **searcher},
            "hyperparameters": SPACE,
            "resources": {"slots_per_trial": 1, "resource_pool": "default", "max_slots": most},
            "labels": ["size", name],
        }
    )


def _searched(trials: int) -> Iterator[Row]:
    """A search with rungs, as the engine ran it, all rows in their last state."""
    section = {"name": "adaptive_asha", "max_trials": trials, "max_length": {"batches": 1000}, "max_rungs": 4}
    config = _config("rungs", section)
    store = MemoryStore()
    store_rows = store._tables  # noqa: SLF001  its copies would take minutes
    workload = PowerLaw(config.hyperparameters, 0, smaller_is_better=True)
    simulation = Simulation(Site(nodes=16, slots_per_node=16), Pace(), workload, master=Master(store=store))
    simulation.create(config)
    simulation.run()
    for kind in store_rows:
        for row in store_rows[kind].values():
            yield _later(row)


def _later(row: Any) -> Any:
    """The simulated clock begins at 0."""
    times = [name for name in row.__slots__ if name.endswith("_at") and getattr(row, name) is not None]
    return replace(row, **{name: BEGAN + getattr(row, name) for name in times})


def _created(state: ClusterState, config: ExperimentConfig) -> tuple[Experiment, Sequence[Trial], Sequence[Task]]:
    number = state.next_experiment_id
    at = BEGAN + 3600.0 * number
    rows = step(state, events.CreateExperiment("me", config, "", "", number, str(uuid.UUID(int=number)), True, at))
    last = {(type(row), getattr(row, "id", None)): row for row in rows}
    kinds: tuple[list[Any], list[Any], list[Any]] = ([], [], [])
    for row in last.values():
        for kind, found in zip((Experiment, Trial, Task), kinds):
            if isinstance(row, kind):
                found.append(row)
    return kinds[0][0], kinds[1], kinds[2]


def _ended(state: ClusterState, trials: int, reports: int) -> Iterator[Row]:
    searcher = {"name": "random", "max_trials": trials, "max_concurrent_trials": trials}
    # No two are quite alike, as among people.
    config = _config(f"ended-{trials}", searcher, description=f"number {state.next_experiment_id}")
    experiment, created, tasks = _created(state, config)
    end = experiment.created_at + 3000.0
    yield replace(experiment, state=State.COMPLETED, ended_at=end, progress=1.0)
    for task in tasks:
        yield replace(task, state=State.COMPLETED, ended_at=end, runs=1)
    draw = random.Random(experiment.id)
    for trial in created:
        yield from _trained(trial, experiment, reports, draw, end, True)
    state.experiments.clear()  # nothing is decided any more about it
    for kept in (state.jobs, state.trials, state.tasks, state.runs):
        kept.clear()
    state.places, state.live = type(state.places)(), type(state.live)()


def _open(state: ClusterState, trials: int) -> Iterator[Row]:
    config = _config("open", {"name": "random", "max_trials": trials, "max_concurrent_trials": trials}, LIVE)
    experiment, created, tasks = _created(state, config)
    yield experiment
    draw = random.Random(experiment.id)
    for n, (trial, task) in enumerate(zip(created, tasks)):
        live = n < LIVE
        yield replace(task, runs=int(live))
        if live:
            yield from _trained(trial, experiment, 10_000 if n == 0 else 100, draw, None, False)
        else:
            yield replace(trial, runs=0)


def _trained(
    trial: Trial, experiment: Experiment, reports: int, draw: random.Random, end: float | None, over: bool
) -> Iterator[Row]:
    task, began = task_id(experiment.id, trial.id), experiment.created_at + draw.random() * 1000
    run = f"{experiment.id}.{trial.id}.1"
    best, best_steps, loss = float("inf"), 0, draw.random() * 5
    for n in range(1, reports + 1):
        group = "validation" if n % 3 == 0 else "training"
        loss *= 0.9 + 0.18 * draw.random()
        metrics = {"loss": loss, "accuracy": 1 / (1 + loss), "epoch": n}
        yield Metric(run, 0, n, experiment.id, trial.id, group, n * 10, began + n, metrics)
        if group == "validation" and loss < best:
            best, best_steps = loss, n * 10
    saved = str(uuid.UUID(int=trial.id))
    files = {"model.pt": 1_000_000 + trial.id, "metadata.json": 90}
    yield Checkpoint(
        saved,
        experiment.id,
        trial.id,
        run,
        0,
        reports + 1,
        CheckpointState.COMPLETED,
        reports // 3 * 30,
        began + reports + 1,
        {"steps_completed": reports // 3 * 30},
        files,
    )
    state, attempt = (RunState.ENDED, AttemptState.ENDED) if over else (RunState.RUNNING, AttemptState.RUNNING)
    how = End.COMPLETED if over else None
    yield Run(
        run,
        experiment.id,
        task,
        1,
        state,
        began,
        1,
        "default",
        scheduler_job_id=str(trial.id),
        scheduler=StandIn.identity,
        attempt=0,
        nodes=["node1"],
        submitted_at=began,
        started_at=began,
        ended_at=end,
        end=how,
    )
    yield Attempt(run, 0, experiment.id, task, attempt, began, end, reports + 1, 0, nodes=["node1"], end=how)
    yield replace(
        trial,
        state=State.COMPLETED if over else State.ACTIVE,
        runs=1,
        steps_completed=reports * 10,
        latest_checkpoint=saved,
        best_validation=best,
        latest_validation=loss,
        best_validation_steps=best_steps,
        progress=1.0 if over else 0.5,
        started_at=began,
        ended_at=end,
    )
