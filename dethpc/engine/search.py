"""Decisions of a search: what a searcher wants becomes trials, and what trials do is told to it."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache

from typing_extensions import assert_never

from dethpc.config.sections.searcher import WarmStart
from dethpc.domain.facts import Experiment, SearchNote, Trial
from dethpc.domain.states import State
from dethpc.engine import events
from dethpc.engine.decision import Decision
from dethpc.engine.queueing.jobs import ExperimentState, holds_others, waits_for_searcher
from dethpc.engine.state import ClusterState
from dethpc.engine.stop import end_trial, stop_run, trial_task
from dethpc.errors import Refused
from dethpc.searcher.base import Action, Continue, Create, Note, Stop, Wait
from dethpc.searcher.custom import CustomSearch

NEW_WEIGHTS = "begins with new weights: the trial that it copies left no checkpoint"

_uuid = lru_cache(maxsize=16)(uuid.UUID)  # a search asks for its own once for each of its trials


def act(
    state: ClusterState, experiment: ExperimentState, actions: Iterable[Action], at: float, decision: Decision
) -> None:
    """Turn a searcher's actions into rows."""
    row, notes, created, frees = experiment.row, experiment.notes, 0, False
    for action in actions:
        if isinstance(action, Create):
            trial = new_trial(state, experiment, action, state.next_trial_id + created, at)
            decision.rows += [trial, trial_task(row, trial)]
            created += 1
        elif isinstance(action, Note):
            notes += 1
            decision.rows.append(SearchNote(row.id, notes, action.index, action.kind, action.data))
            continue
        elif isinstance(action, Stop):
            trial = experiment.trials[action.index]
            end_trial(experiment, trial, State.STOPPING_COMPLETED, action.reason, at, decision)
        elif isinstance(action, Wait):
            trial = experiment.trials[action.index]
            decision.rows.append(replace(trial, search={**trial.search, "waits": True}, reason=action.reason))
            stop_run(experiment, trial.index, action.reason, at, decision)
        elif isinstance(action, Continue):
            decision.rows.append(_continued(experiment.trials[action.index], action))
        else:
            assert_never(action)
        frees = True
    if frees:
        decision.then.append(events.Schedule(at))


def _continued(trial: Trial, action: Continue) -> Trial:
    """``granted_in`` is the run that knows only of the lengths before: its end is not the trial's."""
    lengths = [*trial.search.get("lengths", ()), *action.through, action.length]
    search = {**trial.search, "lengths": lengths, "waits": False, "granted_in": trial.runs}
    return replace(trial, search=search, reason=action.reason)


def new_trial(state: ClusterState, experiment: ExperimentState, action: Create, trial_id: int, at: float) -> Trial:
    row = experiment.row
    if action.source is None:
        searcher = experiment.config.searcher
        source = searcher.source_checkpoint_uuid if isinstance(searcher, WarmStart) else None
    else:
        parent = experiment.trials[action.source]
        source = parent.latest_checkpoint or parent.source_checkpoint
    digest = hashlib.sha256(f"{row.seed}:{action.index}".encode()).digest()
    return Trial(
        id=trial_id,
        experiment_id=row.id,
        index=action.index,
        hparams=action.hparams,
        search=action.search,
        seed=int.from_bytes(digest[:4], "big") & 0x7FFFFFFF,
        state=State.PAUSED if row.state is State.PAUSED else State.ACTIVE,
        created_at=at,
        request_id=action.search.get("request_id") or str(uuid.uuid5(_uuid(row.queue_id), str(action.index))),
        source_checkpoint=source,
        reason="" if action.source is None or source is not None else NEW_WEIGHTS,
    )


def copies_nothing(trial: Trial) -> bool:
    """Whether the trial is a copy that its search made of one without a checkpoint."""
    return trial.search.get("parent") is not None and trial.source_checkpoint is None


def trial_closed(state: ClusterState, event: events.TrialClosed) -> Decision:
    """The search goes on without the trial, or the experiment ends with it."""
    trial = state.trial(event.trial_id)
    assert trial is not None
    experiment = state.experiments[trial.experiment_id]
    row, decision = experiment.row, Decision()
    if holds_others(trial):
        decision.then.append(events.Schedule(event.at))
    if not row.state.stopping and not row.state.terminal and row.kind.submitted:
        try:
            actions = experiment.searcher.exited(trial.index, event.how)
        except Refused as error:
            return _search_failed(experiment, str(error), event.at)
        act(state, experiment, actions, event.at, decision)
        searching = not experiment.searcher.over
        if searching or any(isinstance(action, (Create, Continue)) for action in actions):
            decision.rows.append(replace(row, progress=experiment.searcher.progress))
            return decision
    if experiment.open:
        open_trials = (experiment.trials[index] for index in experiment.open)
        decision.rows.append(replace(paused_with(row, open_trials), progress=_progress(experiment)))
    elif not row.state.terminal:
        decision.rows.append(_ended(experiment, _last_end(experiment, event.at)))
    return decision


def _last_end(experiment: ExperimentState, at: float) -> float:
    """When the last of its trials ended, all of which have: earlier than ``at`` where nobody noticed."""
    return min(at, max((trial.ended_at or 0.0 for trial in experiment.trials), default=at))


def _search_failed(experiment: ExperimentState, reason: str, at: float, how: State = State.STOPPING_ERROR) -> Decision:
    """The searcher cannot say how to continue: the experiment ends with this reason, and its trials save what they have."""
    decision = Decision([replace(experiment.row, state=how, reason=reason)])
    for index in sorted(experiment.open):
        end_trial(experiment, experiment.trials[index], State.STOPPING_CANCELED, reason, at, decision)
    if not experiment.open:
        ended = replace(
            experiment.row, ended_at=at, progress=_progress(experiment), collect=experiment.row.kind.submitted
        )
        decision.rows[0] = replace(ended, state=how.end, reason=reason)
    return decision


def paused_with(row: Experiment, open_trials: Iterable[Trial]) -> Experiment:
    """The experiment, paused when every one of its ``open_trials`` is: it waits for its owner, and should look like it.

    Trials that wait for the searcher will only move when another has, so they do not count.
    """
    reasons: dict[str, None] = {}
    some = False
    for trial in open_trials:
        if row.state is not State.ACTIVE or (trial.state is not State.PAUSED and not waits_for_searcher(trial)):
            return row
        if trial.state is State.PAUSED and not waits_for_searcher(trial):
            some = True
            if trial.reason:
                reasons[trial.reason] = None
    if not some:
        return row
    return replace(row, state=State.PAUSED, reason=f"{'; '.join(reasons)}; activate the experiment to resume")


def _ended(experiment: ExperimentState, at: float) -> Experiment:
    row = experiment.row
    row = replace(row, ended_at=at, progress=_progress(experiment), collect=row.kind.submitted)
    if row.state.stopping:
        return replace(row, state=row.state.end)
    completed = sum(trial.state is State.COMPLETED for trial in experiment.trials)
    if completed:
        reason = _without_winner(experiment) or _compared_too_early(experiment)
        return replace(row, state=State.COMPLETED, reason=reason, progress=1.0)
    if all(trial.state is State.CANCELED for trial in experiment.trials):
        return replace(row, state=State.CANCELED, reason="every trial was killed")
    last = next((t.reason for t in reversed(experiment.trials) if t.state is State.ERROR), "")
    return replace(row, state=State.ERROR, reason=f"no trial completed; the last error: {last}")


def _without_winner(experiment: ExperimentState) -> str:
    """Why nothing of what completed is the best, if so: an unmodified script may report nothing at all."""
    if not experiment.row.kind.submitted or any(trial.best_validation is not None for trial in experiment.trials):
        return ""
    metric = experiment.config.searcher.metric
    return f"completed, but no trial reported {metric}, the searcher's metric, as a number, so there is no best trial"


def _compared_too_early(experiment: ExperimentState) -> str:
    """That no trial came to where the best was to be told, if so; other trials than completed ones may be why."""
    if any(trial.state is not State.COMPLETED for trial in experiment.trials):
        return ""
    shortcoming = experiment.searcher.shortcoming
    return f"completed, but {shortcoming}" if shortcoming else ""


def _progress(experiment: ExperimentState) -> float:
    """How far the experiment is; where it ends before its search does, what its trials trained of all that they would have. While
    it stops, what it was before: many trials may end, and each time all would have to be added up."""
    if experiment.open:
        return experiment.row.progress if experiment.row.state.stopping else experiment.searcher.progress
    done = sum(1.0 if trial.state is State.COMPLETED else trial.progress for trial in experiment.trials)
    return experiment.searcher.progress_at(done, experiment.row.progress)


def validated(state: ClusterState, event: events.Validated) -> Decision:
    """The searcher's metric was reported."""
    trial = state.trial(event.trial_id)
    assert trial is not None
    experiment, decision = state.experiments[trial.experiment_id], Decision()
    row = experiment.row
    if (
        trial.state in (State.ACTIVE, State.PAUSED)
        and not waits_for_searcher(trial)
        and not row.state.stopping
        and row.kind.submitted
    ):
        try:
            actions = experiment.searcher.validated(trial.index, event.length, event.metric)
        except Refused as error:
            return _search_failed(experiment, str(error), event.at)
        act(state, experiment, actions, event.at, decision)
    return decision


def advanced(state: ClusterState, event: events.Advanced) -> Decision:
    """The experiment with its progress in whole percent: its row is written a hundred times, not with each report."""
    experiment = state.experiments[event.experiment_id]
    progress = round(_progress(experiment), 2)
    if experiment.row.state.terminal or progress == round(experiment.row.progress, 2):
        return Decision()
    return Decision([replace(experiment.row, progress=progress)])


def parked(state: ClusterState, event: events.Parked) -> Decision:
    """A trial waits for its searcher and has given its slots back."""
    trial = state.trial(event.trial_id)
    assert trial is not None
    experiment, decision = state.experiments[trial.experiment_id], Decision()
    if waits_for_searcher(trial) and not trial.state.terminal and not experiment.row.state.stopping:
        act(state, experiment, experiment.searcher.parked(trial.index), event.at, decision)
    return decision


def operate(state: ClusterState, event: events.Operate) -> Decision:
    """Raises Refused when the experiment is not open to a search method from outside, or does not understand the operations."""
    experiment = state.experiment(event.experiment_id)
    row, searcher = experiment.row, experiment.searcher
    if not isinstance(searcher, CustomSearch):
        raise Refused(f"experiment {row.id} has searcher {experiment.config.searcher.name}, not custom")
    if row.state.terminal or row.state.stopping:
        raise Refused(f"experiment {row.id} is {row.state.value}; its search is over")
    try:
        actions = searcher.operate(event.operations, event.event_id)
    except (KeyError, TypeError, ValueError) as error:
        raise Refused(f"searcher operations: {error}") from None
    decision = Decision()
    act(state, experiment, actions, event.at, decision)
    decision.then.append(events.Operated(row.id, event.at))
    return decision


def operated(state: ClusterState, event: events.Operated) -> Decision:
    """The operations were committed: trials with nothing left to do are closed, and with the last of them the search ends."""
    experiment, decision = state.experiments[event.experiment_id], Decision()
    row, searcher = experiment.row, experiment.searcher
    assert isinstance(searcher, CustomSearch)
    if searcher.abandoned == "failure" and not row.state.terminal:
        return _search_failed(experiment, "the search method failed", event.at)
    if searcher.abandoned and not row.state.terminal:
        return _search_failed(experiment, "canceled by the search method", event.at, State.STOPPING_CANCELED)
    if searcher.over and not experiment.open and not row.state.terminal:
        decision.rows.append(_ended(experiment, event.at))
    elif not row.state.terminal:
        act(state, experiment, searcher.settled(), event.at, decision)
    return decision
