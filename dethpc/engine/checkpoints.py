"""Decisions about checkpoints that are there already: other metadata, other files, deletion, damage."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import replace

from dethpc.config.sections.searcher import PBT, WarmStart
from dethpc.domain.facts import Attempt, Checkpoint, Row, Trial
from dethpc.domain.ids import task_id
from dethpc.domain.states import CheckpointState
from dethpc.engine import events
from dethpc.engine.decision import Decision
from dethpc.engine.queueing.jobs import ExperimentState
from dethpc.engine.state import ClusterState
from dethpc.errors import Refused

NEVER_ARRIVED = "it never reached its storage, which was away, and was lost with its node"
_IN_SPOOL = "it waits for its storage, which was away, in "


def in_spool(folder: str) -> str:
    """What is said of a checkpoint that waits in the spool, where it can be read."""
    return f"{_IN_SPOOL}{folder}"[:500]


def arrived(waiting: Iterable[Checkpoint]) -> list[Row]:
    """Those of ``waiting`` that were in the spool, now that they are in their storage."""
    return [no_longer_waits(row) for row in waiting if row.reason.startswith(_IN_SPOOL)]


def no_longer_waits(checkpoint: Checkpoint) -> Checkpoint:
    return replace(checkpoint, reason="") if checkpoint.reason.startswith(_IN_SPOOL) else checkpoint


def brought(state: ClusterState, event: events.CheckpointsBrought) -> Decision:
    return Decision(arrived(event.checkpoints))


def lost(state: ClusterState, trial: Trial) -> int:
    """How many checkpoints of the trial, whose run is over, never reached their storage."""
    checkpoints = state.checkpoints.get(trial.id, {}).values()
    return sum(row.reason == NEVER_ARRIVED or row.state is CheckpointState.ACTIVE for row in checkpoints)


def change(state: ClusterState, event: events.ChangeCheckpoints) -> Decision:
    """Raises Refused when a checkpoint shall go that somebody needs."""
    gone = {c.uuid for c in event.checkpoints if c.decided is not CheckpointState.COMPLETED}
    refuse_needed(state, gone, event.needed)
    rows: list[Row] = list(event.checkpoints)
    return Decision(rows)


def refuse_needed(state: ClusterState, gone: Set[str], others: Mapping[str, str]) -> None:
    """Raises Refused where a checkpoint shall go that somebody needs. ``others``: who does of whom the engine knows nothing, by
    uuid, in words."""
    if not gone:
        return
    reasons = {**others, **needed(state)}
    for uuid in sorted(gone & reasons.keys()):
        raise Refused(f"checkpoint {uuid} is needed: {reasons[uuid]}")


def needed(state: ClusterState) -> dict[str, str]:
    """What trials that have not ended would start from, and those that a search has yet to create: by uuid, who, in words."""
    reasons: dict[str, str] = {}
    for experiment in state.active():
        searcher, id = experiment.config.searcher, experiment.row.id
        if not experiment.row.state.keeps_files:
            continue
        if isinstance(searcher, WarmStart) and searcher.source_checkpoint_uuid:
            reasons[searcher.source_checkpoint_uuid] = f"the trials of experiment {id} start from it"
        copied = isinstance(searcher, PBT)  # a trial that has ended is copied as well
        for index, trial in enumerate(experiment.trials) if copied else _open(experiment):
            reason = f"trial {trial.id} of experiment {id} would start from it"
            if index not in experiment.open:
                reason = f"the search of experiment {id} may copy trial {trial.id} from it"
            for uuid in (trial.latest_checkpoint, trial.source_checkpoint):
                if uuid is not None:
                    reasons[uuid] = reason
    return reasons


def _open(experiment: ExperimentState) -> Iterator[tuple[int, Trial]]:
    return ((index, experiment.trials[index]) for index in experiment.open)


def deleted_by_trial(
    state: ClusterState, trial: Trial, checkpoints: dict[str, Checkpoint], uuid: str, resources: dict[str, int]
) -> list[Row]:
    """A trial's training code deleted a checkpoint of its own, or files of it. ``checkpoints`` are the trial's, by uuid.

    The rows: the checkpoint, and the trial when it now goes on from another one.
    """
    checkpoint = checkpoints.get(uuid)
    if checkpoint is None:
        return []
    partly = CheckpointState.PARTIALLY_DELETED if resources else CheckpointState.DELETED
    changed = replace(checkpoint, state=partly, resources=resources)
    if checkpoint.state is CheckpointState.ACTIVE:
        changed = replace(changed, reason=NEVER_ARRIVED)
    if trial.latest_checkpoint != uuid:
        return [changed]
    return [changed, _without(state, trial, {**checkpoints, uuid: changed})]


def never_arrived(state: ClusterState, trial_id: int | None, run_id: str) -> list[Row]:
    """The checkpoints that waited for their storage when what the run had on its nodes was lost."""
    checkpoints = state.checkpoints.get(trial_id, {}) if trial_id is not None else {}
    return [
        replace(row, state=CheckpointState.DELETED, resources={}, reason=NEVER_ARRIVED)
        for row in checkpoints.values()
        if row.state is CheckpointState.ACTIVE and row.run_id == run_id
    ]


def damaged(
    state: ClusterState, trial: Trial, checkpoints: dict[str, Checkpoint], uuid: str, why: str
) -> tuple[list[Row], str]:
    """A checkpoint of ``trial`` failed its checks on restore. ``checkpoints`` as for ``deleted_by_trial``.

    The rows, as there; and what the trial goes on from now, in words: "" where that is no other than before.
    """
    checkpoint = checkpoints.get(uuid)
    if checkpoint is None or checkpoint.decided is CheckpointState.DELETED:
        return [], ""
    changed = replace(checkpoint, state=CheckpointState.ERROR, reason=why)
    if trial.latest_checkpoint != uuid:
        return [changed], ""
    trial = _without(state, trial, {**checkpoints, uuid: changed})
    if trial.latest_checkpoint is not None:
        latest = checkpoints[trial.latest_checkpoint]
        trial = replace(trial, steps_completed=latest.steps_completed)
        resumption = f"the trial goes on from checkpoint {latest.uuid} ({latest.steps_completed} steps)"
    elif trial.source_checkpoint is not None:
        trial = replace(trial, steps_completed=0)
        resumption = f"no earlier one is left, so the trial begins again from checkpoint {trial.source_checkpoint}"
    else:
        trial = replace(trial, steps_completed=0)
        resumption = "no earlier one is left, so the trial begins again at 0 steps"
    return [changed, trial], resumption


def source_damaged(state: ClusterState, event: events.SourceDamaged) -> Decision:
    """It is marked, whoever finds it so: nobody else shall begin there. Copies that a search made of its trial begin where that one
    was before."""
    checkpoint = event.checkpoint
    owner = state.trial(checkpoint.trial_id)
    checkpoints = {} if owner is None else state.checkpoints.get(owner.id, {})
    copies = [] if owner is None else _copies(state, owner, checkpoint, event.others)
    if owner is not None and checkpoint.uuid in checkpoints:
        return Decision([*damaged(state, owner, checkpoints, checkpoint.uuid, event.why)[0], *copies])
    if checkpoint.decided is CheckpointState.DELETED:
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


def usable(state: ClusterState, trial: Trial, checkpoints: Iterable[Checkpoint]) -> list[Checkpoint]:
    """Those of ``checkpoints`` from which the open trial may go on, latest first."""
    return usable_after(state.attempts.get(task_id(trial.experiment_id, trial.id), []), checkpoints)


def usable_after(attempts: Iterable[Attempt], checkpoints: Iterable[Checkpoint]) -> list[Checkpoint]:
    """Those of a trial's ``checkpoints`` from which it may go on after its ``attempts``, latest first.

    Not those that a later attempt, which began at an earlier one, has left behind: its reports would be void up to there.
    """
    void = {(a.run_id, a.number): a.void_after for a in attempts if a.void_after is not None}
    candidates = [
        c
        for c in checkpoints
        if c.decided is CheckpointState.COMPLETED and c.seq <= void.get((c.run_id, c.attempt), c.seq)
    ]
    return sorted(candidates, key=lambda c: c.reported_at, reverse=True)


def _without(state: ClusterState, trial: Trial, checkpoints: dict[str, Checkpoint]) -> Trial:
    """The trial as it goes on from the latest of its checkpoints that is left."""
    candidates = usable(state, trial, checkpoints.values())
    return replace(trial, latest_checkpoint=candidates[0].uuid if candidates else None)
