"""``decide``: what an event changes. Reads the state, never alters it.

A decision is a list of rows to write and a list of events that follow from them. ``step`` runs one outside event with all that
follows, applying each decision before the next is taken.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from dethpc.domain.facts import Metric, Row
from dethpc.engine import (
    checkpoints,
    continuation,
    copies,
    deletion,
    events,
    experiments,
    garbage,
    nodes,
    runs,
    search,
    tasks,
    trials,
    unmanaged,
)
from dethpc.engine.decision import Decision
from dethpc.engine.queueing import queue, reorder
from dethpc.engine.state import ClusterState


def decide(state: ClusterState, event: events.Event) -> Decision:
    """Raises NotFound or Refused for a wish that cannot be granted; every other event is always taken in."""
    return _DECISIONS[type(event)](state, event)


def step(state: ClusterState, event: events.Event) -> list[Row]:
    """Decide ``event`` and everything that follows, apply it to ``state``, and return the rows to commit, in order."""
    rows: list[Row] = []
    todo: deque[events.Event] = deque([event])
    while todo:
        decision = decide(state, todo.popleft())
        for row in (*decision.loaded, *decision.rows):
            if type(row) is not Metric:  # most rows, and memory keeps none
                state.apply(row)
        rows += decision.rows
        todo += decision.then
    return rows


_DECISIONS: dict[type, Callable[[ClusterState, Any], Decision]] = {
    events.CreateExperiment: experiments.create,
    events.Activate: experiments.activate,
    events.ContinueExperiment: continuation.begin,
    events.GoOn: continuation.go_on,
    events.Pause: experiments.pause,
    events.Cancel: experiments.cancel,
    events.Kill: experiments.kill,
    events.KillTrial: experiments.kill_trial,
    events.ChangeExperiment: experiments.change,
    events.UpdateQueue: reorder.update,
    events.Delete: deletion.begin,
    events.LoadExperiment: experiments.load,
    events.ImportRun: experiments.import_run,
    events.TakeIn: copies.take_in,
    events.TakeInMetrics: copies.take_in_metrics,
    events.TrialClosed: search.trial_closed,
    events.Operate: search.operate,
    events.Validated: search.validated,
    events.Parked: search.parked,
    events.Operated: search.operated,
    events.Advanced: search.advanced,
    events.CreateTask: tasks.create,
    events.KillTask: tasks.kill,
    events.PauseTask: tasks.pause,
    events.UnpauseTask: tasks.unpause,
    events.AddTrial: unmanaged.add_trial,
    events.BeginTrial: unmanaged.begin,
    events.EarlyExit: trials.early_exit,
    events.DescribeTrial: trials.describe,
    events.ChangeCheckpoints: checkpoints.change,
    events.CheckpointsBrought: checkpoints.brought,
    events.CollectGarbage: garbage.collect,
    events.FilesRemoved: garbage.removed,
    events.DisableNode: nodes.disable,
    events.EnableNode: nodes.enable,
    events.Prepared: runs.prepared,
    events.Submitted: runs.submitted,
    events.SchedulerKnown: runs.scheduler_known,
    events.SubmitDeferred: runs.submit_deferred,
    events.SubmitFailed: runs.submit_failed,
    events.JobSeen: runs.job_seen,
    events.QueueSeen: queue.seen,
    events.AttemptStarted: runs.started,
    events.Reported: runs.reported,
    events.Posted: runs.posted,
    events.SourceDamaged: checkpoints.source_damaged,
    events.AttemptEnded: runs.ended,
    events.Tick: runs.tick,
    events.Schedule: queue.schedule,
    events.Served: queue.served,
}
