"""Decisions about checkpoints that are there already: other metadata, other files, deletion."""

from __future__ import annotations

from dethpc.domain.facts import Checkpoint, Row, Trial
from dethpc.domain.states import CheckpointState
from dethpc.engine import events
from dethpc.engine.decision import Decision
from dethpc.engine.replace import replace
from dethpc.engine.state import ClusterState
from dethpc.errors import Refused


def change(state: ClusterState, event: events.ChangeCheckpoints) -> Decision:
    """Raises Refused when a checkpoint shall go that a trial which has not ended would start from."""
    gone = {checkpoint.uuid for checkpoint in event.checkpoints if checkpoint.state is not CheckpointState.COMPLETED}
    if gone:
        for experiment in state.active():
            for trial in (experiment.trials[index] for index in experiment.open):
                needed = {trial.latest_checkpoint, trial.source_checkpoint} & gone
                if needed:
                    raise Refused(f"checkpoint {needed.pop()} is needed: trial {trial.id} would start from it")
    rows: list[Row] = list(event.checkpoints)
    return Decision(rows)


def deleted_by_trial(trial: Trial, known: dict[str, Checkpoint], uuid: str, left: dict[str, int]) -> list[Row]:
    """A trial's training code deleted a checkpoint of its own, or files of it. ``known`` are the trial's, by uuid.

    The rows: the checkpoint, and the trial when it now goes on from another one.
    """
    checkpoint = known.get(uuid)
    if checkpoint is None:
        return []
    state = CheckpointState.PARTIALLY_DELETED if left else CheckpointState.DELETED
    changed = replace(checkpoint, state=state, resources=left)
    if trial.latest_checkpoint != uuid:
        return [changed]
    others = [c for c in known.values() if c.uuid != uuid and c.state is CheckpointState.COMPLETED]
    latest = max(others, key=lambda c: c.reported_at, default=None)
    return [changed, replace(trial, latest_checkpoint=None if latest is None else latest.uuid)]
