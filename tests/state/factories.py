"""Facts with little to say, for tests that care about one field."""

from __future__ import annotations

from typing import Any

from dethpc.domain.facts import Attempt, Checkpoint, Experiment, Metric, Run, SearchNote, Trial
from dethpc.domain.ids import task_id
from dethpc.domain.states import AttemptState, CheckpointState, RunState, State


def experiment(id: int = 1, state: State = State.ACTIVE, **fields: Any) -> Experiment:
    fields = {"config": {"name": "x"}, "seed": 7, **fields}
    return Experiment(
        id=id, owner="ada", original_config="a: 1", state=state, created_at=1.5, queue_id=f"job-{id}", **fields
    )


def trial(id: int = 1, experiment_id: int = 1, **fields: Any) -> Trial:
    fields = {"index": id - 1, "hparams": {"lr": 0.1}, "state": State.ACTIVE, **fields}
    return Trial(id=id, experiment_id=experiment_id, seed=3, created_at=2.5, **fields)


def run(id: str = "1.1.1", experiment_id: int = 1, trial_id: int = 1, **fields: Any) -> Run:
    fields.setdefault("state", RunState.RUNNING)
    return Run(
        id=id,
        experiment_id=experiment_id,
        task_id=task_id(experiment_id, trial_id),
        number=1,
        created_at=3.5,
        slots=1,
        pool="a",
        **fields,
    )


def attempt(run_id: str = "1.1.1", k: int = 0, trial_id: int = 1, **fields: Any) -> Attempt:
    return Attempt(
        run_id,
        k,
        fields.get("experiment_id", 1),
        task_id(fields.pop("experiment_id", 1), trial_id),
        AttemptState.RUNNING,
        4.5,
        **fields,
    )


def metric(seq: int, run_id: str = "1.1.1", k: int = 0, trial_id: int = 1, **fields: Any) -> Metric:
    fields = {"group": "training", "steps_completed": seq * 10, "metrics": {"loss": 1 / seq}, **fields}
    return Metric(
        run_id=run_id, attempt=k, seq=seq, experiment_id=1, trial_id=trial_id, reported_at=5.5 + seq, **fields
    )


def checkpoint(uuid: str = "c-1", experiment_id: int = 1, trial_id: int = 1, **fields: Any) -> Checkpoint:
    return Checkpoint(uuid, experiment_id, trial_id, "1.1.1", 0, 3, CheckpointState.COMPLETED, 30, 6.5, **fields)


def note(seq: int = 1, experiment_id: int = 1, **fields: Any) -> SearchNote:
    return SearchNote(experiment_id, seq, 0, "rung", {"value": seq, **fields})
