"""Decisions about experiments that shall go with their files, which a task of kind CHECKPOINT_GC removes on a compute node."""

from __future__ import annotations

from dataclasses import replace

from dethpc.domain.facts import Row, Task
from dethpc.domain.states import RunState, State, TaskKind, shown_as
from dethpc.engine import events
from dethpc.engine.checkpoints import refuse_needed
from dethpc.engine.decision import Decision
from dethpc.engine.state import ClusterState
from dethpc.errors import Refused

MOST_RUNS = 3
"""Runs that a deletion gets when its job is lost or preempted, or meets its time limit."""


def begin(state: ClusterState, event: events.Delete) -> Decision:
    """Nothing where it has begun. Raises Refused for an experiment that has not ended, or whose checkpoints others need."""
    row = state.experiment(event.experiment_id).row
    if row.state is State.DELETING:
        return Decision()
    if row.state.stopping:
        raise Refused(f"experiment {row.id} is {row.state.value}: delete it once its jobs have ended")
    if not row.state.terminal:
        runs = [run for run in state.runs.values() if run.experiment_id == row.id]
        name = shown_as(row.state, any(run.state is RunState.RUNNING for run in runs))
        raise Refused(f"experiment {row.id} is {name}; end it before you delete it: det experiment kill {row.id}")
    refuse_needed(state, event.checkpoints, event.needed)
    task = Task(
        id=event.task_id,
        kind=TaskKind.CHECKPOINT_GC,
        queue_id=event.task_id,
        owner=row.owner,
        user_id=row.user_id,
        state=State.ACTIVE,
        created_at=event.at,
        experiment_id=row.id,
        name=f"Checkpoint GC (Experiment {row.id})",
        pool=row.pool if event.pool is None else event.pool,
        queue_position=event.at,
    )
    return Decision([replace(row, state=State.DELETING, reason=""), task], [events.Schedule(event.at)])


def ended(state: ClusterState, task: Task) -> list[Row]:
    """What the end of a deletion's ``task`` means for its experiment."""
    experiment = state.experiments.get(task.experiment_id or 0)
    if experiment is None or experiment.row.state is not State.DELETING:
        return []
    if task.state is State.COMPLETED:
        return [replace(experiment.row, state=State.DELETED)]
    again = f"det experiment delete {experiment.row.id}"
    then = f"it is tried again by itself, or at once: {again}" if task.state is State.ERROR else f"to go on: {again}"
    reason = f"its files could not be deleted: {task.reason}; {then}"
    return [replace(experiment.row, state=State.DELETE_FAILED, reason=reason)]
