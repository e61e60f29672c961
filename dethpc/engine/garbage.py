"""Which checkpoints of an experiment that has ended its policy keeps, and what becomes of the others.

Deleting is a wish in a row: ``removing`` says which of its files a task of kind CHECKPOINT_GC has yet to remove. From the commit on
nobody starts from the checkpoint (``Checkpoint.decided``); its state and its resources change when the task has removed the files.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from operator import attrgetter
from typing import NamedTuple

from dethpc.domain.facts import EVERYTHING, Checkpoint, Row
from dethpc.domain.states import CheckpointState
from dethpc.engine import events
from dethpc.engine.checkpoints import needed, no_longer_waits
from dethpc.engine.decision import Decision
from dethpc.engine.state import ClusterState


class Policy(NamedTuple):
    """How many checkpoints stay when an experiment has ended: ``save_*`` of ``checkpoint_storage``."""

    experiment_best: int
    trial_best: int
    trial_latest: int
    smaller_is_better: bool = True


class Candidate(NamedTuple):
    """A checkpoint that has files. ``value``: of the searcher's metric, validated at the checkpoint's step; None: none was."""

    uuid: str
    trial_id: int
    reported_at: float
    value: float | None = None
    whole: bool = True  # False: some of its files were deleted, and no trial can go on from it


def unwanted(policy: Policy, candidates: Iterable[Candidate], protected: Collection[str] = ()) -> list[str]:
    """Those that the policy does not keep, and that are not among ``protected``: their uuids, the oldest first.

    What one of the three counts keeps, stays. Equally good ones rank by age, the older first. Without a value a checkpoint is none
    of the best. One that is whole comes before all that are not, in each count: a trial goes on from no other, and nobody can use
    what is left of the best.
    """
    ordered = sorted(candidates, key=attrgetter("reported_at", "uuid"))
    stays = set(protected)
    sign = 1.0 if policy.smaller_is_better else -1.0
    measured = [c for c in ordered if c.value is not None and math.isfinite(c.value)]
    best = sorted(measured, key=lambda c: (not c.whole, sign * c.value))  # type: ignore[operator]
    stays.update(c.uuid for c in best[: policy.experiment_best])
    stays.update(_first_of_each_trial(best, policy.trial_best))
    newest = ordered[::-1]
    latest = sorted(newest, key=lambda c: not c.whole)
    stays.update(_first_of_each_trial(latest, policy.trial_latest))
    return [c.uuid for c in ordered if c.uuid not in stays]


def _first_of_each_trial(ranked: Iterable[Candidate], most: int) -> Iterator[str]:
    seen: dict[int, int] = {}
    for candidate in ranked:
        rank = seen[candidate.trial_id] = seen.get(candidate.trial_id, 0) + 1
        if rank <= most:
            yield candidate.uuid


def collect(state: ClusterState, event: events.CollectGarbage) -> Decision:
    """Delete what was chosen, but for what somebody needs by now. Nothing where the experiment goes on meanwhile."""
    experiment = state.experiment(event.experiment_id)
    row = experiment.row
    if not row.collect or not row.state.terminal or experiment.open or not row.state.keeps_files:
        return Decision()
    stays = needed(state).keys() | event.needed
    chosen = (c for c in event.checkpoints if c.uuid not in stays and c.decided in HAVE_FILES)
    why = "not among those that save_experiment_best, save_trial_best and save_trial_latest keep"
    rows: list[Row] = [replace(without(checkpoint, {}, [EVERYTHING]), reason=why) for checkpoint in chosen]
    if event.last:
        rows.append(replace(row, collect=False))
    return Decision(rows)


HAVE_FILES = (CheckpointState.COMPLETED, CheckpointState.PARTIALLY_DELETED)
"""What a policy decides about. One that is damaged stays until somebody has looked at it: its storage may come back."""


def without(checkpoint: Checkpoint, files: dict[str, int], globs: Collection[str]) -> Checkpoint:
    """The checkpoint when a task is to remove the files that match, which leaves these; without ``globs``, when the others are gone
    already."""
    if not globs:
        return _of_files(checkpoint, files)
    if files and set(files) >= set(checkpoint.resources):
        return checkpoint  # none of its files matches
    removing = list(dict.fromkeys([*checkpoint.removing.splitlines(), *globs]))
    whole = not files or EVERYTHING in removing
    row = no_longer_waits(checkpoint) if whole else checkpoint
    return replace(row, removing=EVERYTHING if whole else "\n".join(removing))


def _of_files(checkpoint: Checkpoint, files: dict[str, int]) -> Checkpoint:
    """The checkpoint when these are its files."""
    if checkpoint.state is CheckpointState.DELETED or not files:
        return replace(no_longer_waits(checkpoint), resources={}, state=CheckpointState.DELETED)
    undeleted = checkpoint.state in (CheckpointState.COMPLETED, CheckpointState.ERROR)
    all_there = set(files) >= set(checkpoint.resources)
    return replace(
        checkpoint,
        resources=files,
        state=checkpoint.state if undeleted and all_there else CheckpointState.PARTIALLY_DELETED,
    )


def removed(state: ClusterState, event: events.FilesRemoved) -> Decision:
    """A task has removed files of checkpoints. What was wished meanwhile is still to be done."""
    rows: list[Row] = []
    for checkpoint in event.checkpoints:
        globs, files = event.done[checkpoint.uuid]
        removing = "\n".join(glob for glob in checkpoint.removing.splitlines() if glob not in globs)
        if removing == checkpoint.removing:
            continue
        row = replace(checkpoint, removing=removing)
        if why := event.refused.get(row.uuid):
            row = replace(row, reason=f"its files were left in place: {why}"[:500])
            files = {} if checkpoint.decided is CheckpointState.DELETED else checkpoint.resources
        row = _of_files(row, files)
        rows.append(row)
    return Decision(rows)
