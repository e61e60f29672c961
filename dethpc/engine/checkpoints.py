"""Decisions about checkpoints that are there already: other metadata, other files, deletion, damage."""

from __future__ import annotations

from collections.abc import Iterable, Set

from dethpc.domain.facts import Attempt, Checkpoint, Row, Trial
from dethpc.domain.ids import task_id
from dethpc.domain.states import CheckpointState
from dethpc.engine import events
from dethpc.engine.decision import Decision
from dethpc.engine.replace import replace
from dethpc.engine.state import ClusterState
from dethpc.errors import Refused


def change(state: ClusterState, event: events.ChangeCheckpoints) -> Decision:
    """Raises Refused when a checkpoint shall go that a trial which has not ended would start from."""
    refuse_needed(state, {c.uuid for c in event.checkpoints if c.state is not CheckpointState.COMPLETED})
    rows: list[Row] = list(event.checkpoints)
    return Decision(rows)


def refuse_needed(state: ClusterState, gone: Set[str]) -> None:
    """Raises Refused where a trial that has not ended would start from a checkpoint that shall go."""
    if not gone:
        return
    for experiment in state.active():
        for trial in (experiment.trials[index] for index in experiment.open):
            needed = {trial.latest_checkpoint, trial.source_checkpoint} & gone
            if needed:
                raise Refused(f"checkpoint {needed.pop()} is needed: trial {trial.id} would start from it")


def deleted_by_trial(
    state: ClusterState, trial: Trial, known: dict[str, Checkpoint], uuid: str, left: dict[str, int]
) -> list[Row]:
    """A trial's training code deleted a checkpoint of its own, or files of it. ``known`` are the trial's, by uuid.

    The rows: the checkpoint, and the trial when it now goes on from another one.
    """
    checkpoint = known.get(uuid)
    if checkpoint is None:
        return []
    partly = CheckpointState.PARTIALLY_DELETED if left else CheckpointState.DELETED
    changed = replace(checkpoint, state=partly, resources=left)
    if trial.latest_checkpoint != uuid:
        return [changed]
    return [changed, _without(state, trial, {**known, uuid: changed})]


def damaged(
    state: ClusterState, trial: Trial, known: dict[str, Checkpoint], uuid: str, why: str
) -> tuple[list[Row], str]:
    """A checkpoint of ``trial`` failed its checks on restore. ``known`` as for ``deleted_by_trial``.

    The rows, as there; and what the trial goes on from now, in words: "" where that is no other than before.
    """
    checkpoint = known.get(uuid)
    if checkpoint is None or checkpoint.state is CheckpointState.DELETED:
        return [], ""
    changed = replace(checkpoint, state=CheckpointState.ERROR, reason=why)
    if trial.latest_checkpoint != uuid:
        return [changed], ""
    trial = _without(state, trial, {**known, uuid: changed})
    if trial.latest_checkpoint is not None:
        latest = known[trial.latest_checkpoint]
        trial = replace(trial, steps_completed=latest.steps_completed)
        words = f"the trial goes on from checkpoint {latest.uuid} ({latest.steps_completed} steps)"
    elif trial.source_checkpoint is not None:
        trial = replace(trial, steps_completed=0)
        words = f"no earlier one is left, so the trial begins again from checkpoint {trial.source_checkpoint}"
    else:
        trial = replace(trial, steps_completed=0)
        words = "no earlier one is left, so the trial begins again at 0 steps"
    return [changed, trial], words


def source_damaged(state: ClusterState, event: events.SourceDamaged) -> Decision:
    """It is marked, whoever finds it so: nobody else shall begin there. Copies that a search made of its trial begin where that one
    was before."""
    checkpoint = event.checkpoint
    owner = state.trial(checkpoint.trial_id)
    known = {} if owner is None else state.checkpoints.get(owner.id, {})
    copies = [] if owner is None else _copies(state, owner, checkpoint, event.others)
    if owner is not None and checkpoint.uuid in known:
        return Decision([*damaged(state, owner, known, checkpoint.uuid, event.why)[0], *copies])
    if checkpoint.state is CheckpointState.DELETED:
        return Decision(copies)
    return Decision([replace(checkpoint, state=CheckpointState.ERROR, reason=event.why), *copies])


def _copies(state: ClusterState, owner: Trial, checkpoint: Checkpoint, others: Iterable[Checkpoint]) -> list[Row]:
    """The copies of ``owner`` that were to begin at its ``checkpoint``, and begin now at the one before: its own, else that at
    which it began itself, else none."""
    earlier = usable(state, owner, (c for c in others if c.reported_at < checkpoint.reported_at))
    source = earlier[0].uuid if earlier else owner.source_checkpoint
    experiment = state.experiments[owner.experiment_id]
    open_trials = (experiment.trials[index] for index in experiment.open)
    return [
        replace(trial, source_checkpoint=source)
        for trial in open_trials
        if trial.search.get("parent") == owner.index and trial.source_checkpoint == checkpoint.uuid
    ]


def usable(state: ClusterState, trial: Trial, known: Iterable[Checkpoint]) -> list[Checkpoint]:
    """The checkpoints of ``known`` from which the open trial may go on, latest first."""
    return left(state.attempts.get(task_id(trial.experiment_id, trial.id), []), known)


def left(attempts: Iterable[Attempt], known: Iterable[Checkpoint]) -> list[Checkpoint]:
    """A trial's checkpoints of ``known`` from which it may go on after its ``attempts``, latest first.

    Not those that a later attempt, which began at an earlier one, has left behind: its reports would be void up to there.
    """
    void = {(a.run_id, a.number): a.void_after for a in attempts if a.void_after is not None}
    found = [
        c for c in known if c.state is CheckpointState.COMPLETED and c.seq <= void.get((c.run_id, c.attempt), c.seq)
    ]
    return sorted(found, key=lambda c: c.reported_at, reverse=True)


def _without(state: ClusterState, trial: Trial, known: dict[str, Checkpoint]) -> Trial:
    """The trial as it goes on from the latest of its checkpoints that is left."""
    found = usable(state, trial, known.values())
    return replace(trial, latest_checkpoint=found[0].uuid if found else None)
