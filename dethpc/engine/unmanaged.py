"""Decisions about trials that run elsewhere: a script outside the cluster reports what it does, and nobody submits anything.

Each time that a script starts a trial (again) it gets a run of its own, which no scheduler knows; its one attempt has a journal
as any other, written by the master. So what holds for reports, fencing and resuming holds here as well.
"""

from __future__ import annotations

from dataclasses import replace

from dethpc.domain.facts import Row, Run, Trial
from dethpc.domain.ids import run_id, task_id
from dethpc.domain.states import AttemptState, CheckpointState, End, RunState, State, TaskKind
from dethpc.engine import events
from dethpc.engine.continuation import reopened
from dethpc.engine.decision import Decision
from dethpc.engine.queueing.jobs import ExperimentState
from dethpc.engine.search import new_trial
from dethpc.engine.state import ClusterState
from dethpc.engine.stop import trial_task
from dethpc.errors import NotFound, Refused
from dethpc.searcher.base import Create


def add_trial(state: ClusterState, event: events.AddTrial) -> Decision:
    """A trial with the hyperparameters that its script has chosen. Nothing when its request id is known."""
    experiment = _experiment(state, event.experiment_id)
    if any(trial.request_id == event.request_id for trial in experiment.trials):
        return Decision()
    search = {"request_id": event.request_id}
    create = Create(len(experiment.trials), event.hparams, search)
    trial = new_trial(state, experiment, create, state.next_trial_id, event.at)
    trial = replace(trial, state=State.ACTIVE, external_id=event.external_id)
    return Decision([*_reopened(experiment, event.at), trial, trial_task(experiment.row, trial)])


def begin(state: ClusterState, event: events.BeginTrial) -> Decision:
    """A script starts to train the trial, from its latest checkpoint with ``resume``. An earlier script is shut out."""
    trial = state.trial(event.trial_id)
    if trial is None:
        raise NotFound(f"no trial {event.trial_id}")
    experiment = _experiment(state, trial.experiment_id)
    rows: list[Row] = _reopened(experiment, event.at)
    if trial.state.terminal:
        again = replace(reopened(trial, event.at), early_exit="")
        rows += [again, trial_task(experiment.row, again)]
        rows += [*event.attempts, *event.checkpoints]
    checkpoints = {c.uuid: c for c in event.checkpoints} or state.checkpoints.get(trial.id, {})
    latest = checkpoints.get(trial.latest_checkpoint or "") if event.resume else None
    if latest is not None and latest.decided is not CheckpointState.COMPLETED:
        latest = None
    rows += _replaced(state, experiment, trial, event.at)
    n = trial.runs + 1
    run = Run(
        id=run_id(task_id(trial.experiment_id, trial.id), n),
        experiment_id=trial.experiment_id,
        task_id=task_id(trial.experiment_id, trial.id),
        number=n,
        state=RunState.PENDING,
        created_at=event.at,
        slots=0,
        pool=experiment.row.pool,
    )
    at_work = replace(reopened(trial, event.at), early_exit="", runs=n)
    started = events.AttemptStarted(
        run_id=run.id,
        attempt=0,
        nodes=[],
        resumed_from=None if latest is None else latest.uuid,
        resumed_steps=0 if latest is None else latest.steps_completed,
        at=event.at,
    )
    return Decision([*rows, at_work, run], [started])


def _replaced(state: ClusterState, experiment: ExperimentState, trial: Trial, at: float) -> list[Row]:
    """The run of a script that is still thought to be at work, ended."""
    run = experiment.live.get(trial.index)
    if run is None:
        return []
    why = "the trial was started again"
    rows: list[Row] = [replace(run, state=RunState.ENDED, ended_at=at, end=End.LOST, reason=why)]
    attempt = state.attempt(run.id, run.attempt)
    if attempt is not None:
        rows.append(replace(attempt, state=AttemptState.ENDED, ended_at=at, end=End.LOST, reason=why))
    return rows


def _reopened(experiment: ExperimentState, at: float) -> list[Row]:
    row = experiment.row
    if row.state.stopping or not row.state.keeps_files:
        raise Refused(f"experiment {row.id} is {row.state.value}")
    if row.state is State.ACTIVE:
        return []
    return [reopened(row, at)]


def _experiment(state: ClusterState, experiment_id: int) -> ExperimentState:
    experiment = state.experiments.get(experiment_id)
    if experiment is None:
        raise NotFound(f"experiment {experiment_id} not found")
    if experiment.row.kind is not TaskKind.UNMANAGED_TRIAL:
        raise Refused(f"experiment {experiment_id} is not unmanaged: its trials are the searcher's and the scheduler's")
    return experiment
