"""How what is under way is brought to its end: runs are asked or killed, trials closed, and their tasks with them."""

from __future__ import annotations

from dataclasses import replace

from dethpc.domain.facts import Experiment, Run, Task, Trial
from dethpc.domain.ids import task_id
from dethpc.domain.states import Intent, RunState, State
from dethpc.engine import events
from dethpc.engine.decision import Decision
from dethpc.engine.queueing.jobs import ExperimentState, Job, exit_of


def trial_task(experiment: Experiment, trial: Trial) -> Task:
    """The task of a trial, as it follows from the two rows."""
    over = trial.state.terminal
    return Task(
        id=task_id(experiment.id, trial.id),
        kind=experiment.kind,
        queue_id=experiment.queue_id,
        owner=experiment.owner,
        user_id=experiment.user_id,
        state=trial.state if over else State.ACTIVE,
        created_at=trial.created_at,
        experiment_id=experiment.id,
        trial_id=trial.id,
        ended_at=trial.ended_at if over else None,
        reason=trial.reason if over else "",
    )


def close_trial(
    experiment: ExperimentState, trial: Trial, how: State, reason: str, at: float, decision: Decision
) -> None:
    """The trial ends as ``how``; it has no live run, or that has just ended: at the trial's ``ended_at``, where that is set, of
    which the master learns now."""
    closed = replace(trial, state=how, reason=reason, ended_at=at if trial.ended_at is None else trial.ended_at)
    decision.rows += [closed, trial_task(experiment.row, closed)]
    decision.then.append(events.TrialClosed(trial.id, exit_of(closed), at))


def end_trial(
    experiment: ExperimentState, trial: Trial, how: State, reason: str, at: float, decision: Decision
) -> None:
    """Bring an open trial to its end: by way of its live run if it has one."""
    if trial.state.terminal or (trial.state.stopping and how is not State.STOPPING_KILLED):
        return
    if trial.index not in experiment.live:
        close_trial(experiment, trial, how.end, reason, at, decision)
        return
    decision.rows.append(replace(trial, state=how, reason=reason))
    if how in (State.STOPPING_KILLED, State.STOPPING_ERROR):
        kill_run(experiment, trial.index, reason, decision)
    else:
        stop_run(experiment, trial.index, reason, at, decision)


def stop_run(job: Job, member: int, reason: str, at: float, decision: Decision) -> None:
    run = job.live.get(member)
    if run is None or run.intent is not Intent.GO:
        return
    if run.state is RunState.RUNNING:
        decision.rows.append(replace(run, intent=Intent.STOP, intent_reason=reason, stopping_since=at))
    else:
        kill_run(job, member, reason, decision)  # nothing has begun, so nothing can be lost


def kill_run(job: Job, member: int, reason: str, decision: Decision) -> None:
    run: Run | None = job.live.get(member)
    if run is not None and run.intent is not Intent.KILL:
        decision.rows.append(replace(run, intent=Intent.KILL, intent_reason=reason))
