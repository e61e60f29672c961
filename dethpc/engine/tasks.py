"""Tasks without a trial, such as commands and garbage collections: they come, are killed, and end with their run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dethpc.domain.facts import Attempt, Row, Run, Task
from dethpc.domain.reports import Report
from dethpc.domain.states import AttemptState, End, Intent, State, TaskKind
from dethpc.engine import deletion, events
from dethpc.engine.decision import Decision
from dethpc.engine.ends import Verdict
from dethpc.engine.state import ClusterState
from dethpc.engine.stop import kill_run
from dethpc.errors import NotFound, Refused


def create(state: ClusterState, event: events.CreateTask) -> Decision:
    """Raises Refused for a kind whose tasks come with a trial."""
    if event.kind.trains:
        raise Refused(f"a task of kind {event.kind.value} comes with its trial; create an experiment")
    if event.id in state.tasks or event.id in state.jobs:
        return Decision()
    return Decision([new_task(event)], [events.Schedule(event.at)])


def new_task(event: events.CreateTask) -> Task:
    """The row that the event creates."""
    return Task(
        id=event.id,
        kind=event.kind,
        queue_id=event.id,
        owner=event.owner,
        user_id=event.user_id,
        state=State.ACTIVE,
        created_at=event.at,
        name=event.name,
        config=event.config,
        pool=event.pool,
        slots=event.slots,
        priority=event.priority,
        weight=event.weight,
        queue_position=event.at,
    )


def _open_task(state: ClusterState, task_id: str) -> Task:
    """One that has not ended. Raises NotFound; Refused for a trial's."""
    task = state.tasks.get(task_id)
    if task is None or task.state.terminal:
        raise NotFound(f"task {task_id} is not there any more, or never was")
    if task.kind.trains:
        raise Refused(f"task {task.id} is that of trial {task.trial_id}: kill the trial, or pause its experiment")
    return task


def pause(state: ClusterState, event: events.PauseTask) -> Decision:
    """Raises NotFound, Refused."""
    task = _open_task(state, event.task_id)
    if task.kind is not TaskKind.GENERIC or task.config.get("no_pause"):
        raise Refused(
            f"task {task.id} cannot be paused: only generic tasks can, unless they were created with no_pause"
        )
    if task.state.stopping:
        raise Refused(f"task {task.id} is being killed")
    if task.state is State.PAUSED:
        return Decision()
    reason = "paused by a user"
    decision = Decision([replace(task, state=State.PAUSED, reason=reason)])
    kill_run(state.jobs[task.queue_id], 0, reason, decision)
    return decision


def unpause(state: ClusterState, event: events.UnpauseTask) -> Decision:
    """Raises NotFound, Refused."""
    task = _open_task(state, event.task_id)
    if task.state is not State.PAUSED:
        raise Refused(f"task {task.id} is not paused")
    return Decision([replace(task, state=State.ACTIVE, reason="")], [events.Schedule(event.at)])


def kill(state: ClusterState, event: events.KillTask) -> Decision:
    """Raises NotFound, Refused."""
    task, reason = _open_task(state, event.task_id), event.reason
    if not state.jobs[task.queue_id].live:
        return Decision(_closed(state, task, State.CANCELED, reason, event.at))
    decision = Decision([replace(task, state=State.STOPPING_KILLED, reason=reason)])
    kill_run(state.jobs[task.queue_id], 0, reason, decision)
    return decision


def _closed(state: ClusterState, task: Task, how: State, reason: str, at: float) -> list[Row]:
    closed = replace(task, state=how, reason=reason, ended_at=at)
    return [closed, *deletion.ended(state, closed)]


class TaskRun:
    """A live run of a task without a trial, and what happens to it means for the task: it begins once."""

    early_exit = ""
    preemption_timeout: float | None = None

    def __init__(self, state: ClusterState, run: Run) -> None:
        self._state, self._run, self._task = state, run, state.tasks[run.task_id]

    def refused(self, message: str, at: float) -> Decision:
        return Decision(_closed(self._state, self._task, State.ERROR, message, at))

    def started(self, event: events.AttemptStarted) -> list[Row]:
        """Earlier starts of the same run are over."""
        return [
            replace(attempt, state=AttemptState.ENDED, ended_at=event.at, end=End.NODE_FAIL)
            for attempt in self._state.attempts.get(self._task.id, ())
            if attempt.state is AttemptState.RUNNING
        ]

    def reported(self, attempt: Attempt, accepted: Sequence[Report]) -> Decision:
        """What a task without a trial reports, nobody asks for yet."""
        return Decision()

    def queued_again(
        self, attempt: Attempt | None, verdict: Verdict, event: events.AttemptEnded
    ) -> tuple[str, list[Row]]:
        return "", []

    def ended(self, attempt: Attempt | None, verdict: Verdict, event: events.AttemptEnded) -> Decision:
        task = self._task
        withdrawn = self._run.intent is Intent.KILL and not task.state.stopping
        if withdrawn and (attempt is None or task.kind is TaskKind.GENERIC):
            return Decision()  # taken from the scheduler's queue, or paused: it has another run later
        # Trials wait for an image, and nobody of them asked for the end of the job that pulls it.
        cancelled = verdict.end is End.CANCELLED and task.kind is TaskKind.IMAGE_PULL
        again = task.kind in (TaskKind.CHECKPOINT_GC, TaskKind.IMAGE_PULL) and (
            verdict.end.resumes or verdict.end is End.LOST or cancelled
        )
        if again and not task.state.stopping and task.runs < deletion.MOST_RUNS:
            return Decision()  # what it did may be done twice
        if task.state.stopping:
            how, reason = task.state.end, task.reason
        elif verdict.end is End.COMPLETED:
            how, reason = State.COMPLETED, verdict.reason if event.report is None else event.report.message
        elif verdict.end in (End.CANCELLED, End.KILLED, End.STOPPED):
            how, reason = State.CANCELED, verdict.reason
        else:
            how, reason = State.ERROR, verdict.reason or verdict.end.value
        return Decision(_closed(self._state, task, how, reason, verdict.at))
