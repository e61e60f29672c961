"""An experiment of another installation, as this one keeps a copy of it: with ids of its own, and ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from dethpc.domain.facts import Attempt, Checkpoint, Experiment, Run, SearchNote, Task, Trial
from dethpc.domain.ids import run_id, task_id
from dethpc.domain.ports import Snapshot
from dethpc.domain.states import AttemptState, End, RunState, State
from dethpc.engine import events
from dethpc.engine.decision import Decision
from dethpc.engine.fold import in_order
from dethpc.engine.state import ClusterState

NO_TOKEN = ""
"""What no token has as its digest."""


@dataclass(frozen=True, slots=True)
class NewIds:
    """What the nouns of an experiment are called here, by what they were called where it comes from."""

    experiment: int
    trials: Mapping[int, int]
    runs: Mapping[str, str]

    @classmethod
    def of(cls, past: Snapshot, experiment: int, first_trial: int) -> NewIds:
        """The same for the same rows, so that a master that is killed goes on where it was."""
        by_index = sorted(past.of(Trial), key=lambda trial: trial.index)
        trials = {trial.id: first_trial + n for n, trial in enumerate(by_index)}
        tasks = {task.id: task_id(experiment, trials[task.trial_id]) for task in past.of(Task) if task.trial_id}
        runs = {run.id: run_id(tasks[run.task_id], run.number) for run in past.of(Run)}
        return cls(experiment, trials, runs)

    def task(self, trial: int) -> str:
        """Of a trial, as it was called."""
        return task_id(self.experiment, self.trials[trial])


def take_in(state: ClusterState, event: events.TakeIn) -> Decision:
    """The caller has made sure that the rows are whole, name each other alone, and bring no checkpoint that is known here."""
    past = event.past
    ids = NewIds.of(past, state.next_experiment_id, state.next_trial_id)
    whose = {task.id: task.trial_id for task in past.of(Task) if task.trial_id is not None}
    rows: dict[type[Any], list[Any]] = {
        Experiment: [_experiment(row, ids, event) for row in past.of(Experiment)],
        Trial: [_trial(row, ids, event.at) for row in past.of(Trial)],
        Task: [_task(row, ids, event) for row in past.of(Task)],
        Run: [_run(row, ids, whose, event.at) for row in past.of(Run)],
        Attempt: [_attempt(row, ids, whose, event.at) for row in past.of(Attempt)],
        Checkpoint: [
            replace(
                row,
                experiment_id=ids.experiment,
                trial_id=ids.trials[row.trial_id],
                run_id=ids.runs[row.run_id],
                removing="",
            )
            for row in past.of(Checkpoint)
        ],
        SearchNote: [replace(row, experiment_id=ids.experiment) for row in past.of(SearchNote)],
    }
    return Decision(list(in_order(Snapshot(rows, 1, 1))))


def take_in_metrics(state: ClusterState, event: events.TakeInMetrics) -> Decision:
    return Decision(list(event.metrics))


def _experiment(row: Experiment, ids: NewIds, event: events.TakeIn) -> Experiment:
    return replace(
        row,
        id=ids.experiment,
        owner=event.owner,
        user_id=event.user_id,
        queue_id=event.queue_id,
        project_id=1,
        parent_id=None,
        imported_run=event.token,
        queue_position=event.at,
        **_ended(row, event.at),
    )


def _trial(row: Trial, ids: NewIds, at: float) -> Trial:
    return replace(row, id=ids.trials[row.id], experiment_id=ids.experiment, not_before=None, **_ended(row, at))


def _task(row: Task, ids: NewIds, event: events.TakeIn) -> Task:
    assert row.trial_id is not None
    return replace(
        row,
        id=ids.task(row.trial_id),
        queue_id=event.queue_id,
        owner=event.owner,
        user_id=event.user_id,
        experiment_id=ids.experiment,
        trial_id=ids.trials[row.trial_id],
        **_ended(row, event.at),
    )


def _run(row: Run, ids: NewIds, whose: Mapping[str, int], at: float) -> Run:
    over = row.state is RunState.ENDED
    return replace(
        row,
        id=ids.runs[row.id],
        experiment_id=ids.experiment,
        task_id=ids.task(whose[row.task_id]),
        token_sha256=NO_TOKEN,
        state=RunState.ENDED,
        ended_at=row.ended_at if over else at,
        end=row.end if over else End.CANCELLED,
        reason=row.reason if over else "it had not ended when its experiment was copied",
    )


def _attempt(row: Attempt, ids: NewIds, whose: Mapping[str, int], at: float) -> Attempt:
    over = row.state is AttemptState.ENDED
    return replace(
        row,
        run_id=ids.runs[row.run_id],
        experiment_id=ids.experiment,
        task_id=ids.task(whose[row.task_id]),
        state=AttemptState.ENDED,
        ended_at=row.ended_at if over else at,
        end=row.end if over else End.CANCELLED,
    )


def _ended(row: Experiment | Trial | Task, at: float) -> dict[str, Any]:
    """What becomes of a row that may not have ended where it comes from."""
    if row.state.terminal:
        return {}
    return {"state": State.CANCELED, "ended_at": at, "reason": f"it was {row.state.value} when it was copied"}
