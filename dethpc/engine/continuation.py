"""An experiment that has ended goes on: the same experiment, the same trials, each from its latest checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

from dethpc.config.experiment import ExperimentConfig
from dethpc.config.sections.searcher import WarmStart
from dethpc.domain.attempts.log_policies import forgotten
from dethpc.domain.facts import Attempt, Checkpoint, Experiment, Row, SearchNote, Trial
from dethpc.domain.ids import task_id
from dethpc.domain.ports import Snapshot
from dethpc.domain.states import State
from dethpc.engine import events
from dethpc.engine.checkpoints import usable_after
from dethpc.engine.decision import Decision
from dethpc.engine.first_trial import freed
from dethpc.engine.fold import in_order
from dethpc.engine.queueing.jobs import ExperimentState, exit_of
from dethpc.engine.state import ClusterState
from dethpc.engine.stop import trial_task
from dethpc.errors import Refused
from dethpc.searcher.base import Exit
from dethpc.searcher.sampling import sample

WHOLE = ("single", "random", "grid")
"""Search methods that may go on: what they do next does not rest on how a trial ended."""


def begin(state: ClusterState, event: events.ContinueExperiment) -> Decision:
    """Raises Refused where it has not ended."""
    experiment = state.experiments.get(event.experiment_id)
    if experiment is not None:
        _check(experiment)

    def missing(row: Row) -> bool:
        if experiment is None:
            return True
        if isinstance(row, SearchNote):
            return row.seq > experiment.notes  # a searcher that hears a note twice knows something else
        return not isinstance(row, Experiment) and not (isinstance(row, Trial) and row.index < len(experiment.trials))

    loaded = [row for row in in_order(event.past) if missing(row)]
    go_on = events.GoOn(event.experiment_id, event.config, event.past, event.at, event.gone)
    return Decision(loaded=loaded, then=[go_on])


def _check(experiment: ExperimentState) -> None:
    row = experiment.row
    if not row.state.terminal or experiment.live:
        raise Refused(f"experiment {row.id} is in non terminal state '{row.state.value}', try again later")
    if not row.state.keeps_files:  # the job that was to remove them may still do so
        raise Refused(f"experiment {row.id} is {row.state.value}, its files may be gone; delete it again")


def go_on(state: ClusterState, event: events.GoOn) -> Decision:
    """Raises Refused where nothing of it can go on."""
    experiment = state.experiment(event.experiment_id)
    _check(experiment)
    row = experiment.row
    if not row.kind.submitted:
        raise Refused(f"experiment {row.id} was not submitted by this master: its own script starts it again")
    if row.archived:
        raise Refused(f"experiment {row.id} is archived; unarchive it before you continue it")
    name = experiment.config.searcher.name
    if name not in WHOLE:
        raise Refused(
            f"experiment {row.id} cannot go on: Unsupported searcher type provided: '{name}' (only {', '.join(WHOLE)} can). How "
            f"its trials ended is part of its decisions: det experiment fork {row.id}, or of one trial det trial continue ID"
        )
    chosen = [trial for trial in experiment.trials if name == "single" or _incomplete(trial)]
    if not chosen:
        raise Refused(
            f"experiment {row.id} is complete; to train again: det experiment fork {row.id} "
            "(experiment has been completed, cannot continue this experiment)"
        )
    _refuse_trials_without_source(experiment, event.gone)
    decision = Decision([_opened(experiment, event, whole=len(chosen) == len(experiment.trials))])
    histories = _histories(event.past)
    for trial in chosen:
        rows = _trial_opened(experiment, trial, event, histories.get(task_id(row.id, trial.id), ([], [])))
        _refuse_without_source(rows[0], event.gone)
        decision.rows += rows
    decision.then.append(events.Schedule(event.at))
    return decision


def _refuse_without_source(trial: Row, gone: Mapping[str, str]) -> None:
    assert isinstance(trial, Trial)
    source = None if trial.latest_checkpoint else trial.source_checkpoint
    if source is not None and source in gone:
        raise Refused(
            f"trial {trial.id} has no checkpoint of its own to go on from, and the one at which it began {gone[source]}: fork "
            f"experiment {trial.experiment_id} with another searcher.source_checkpoint_uuid"
        )


def _refuse_trials_without_source(experiment: ExperimentState, gone: Mapping[str, str]) -> None:
    """Those that its search has yet to create."""
    searcher = experiment.config.searcher
    source = searcher.source_checkpoint_uuid if isinstance(searcher, WarmStart) else None
    if source is not None and source in gone and len(experiment.trials) < experiment.searcher.total:
        raise Refused(
            f"experiment {experiment.row.id} has trials to create, and the checkpoint at which they would begin {gone[source]}: "
            "fork it with another searcher.source_checkpoint_uuid"
        )


def _incomplete(trial: Trial) -> bool:
    """Whether more training may bring it to its end. Invalid hyperparameters stay invalid."""
    return trial.state is not State.COMPLETED and exit_of(trial) is not Exit.INVALID_HP


def _opened(experiment: ExperimentState, event: events.GoOn, *, whole: bool) -> Experiment:
    """The experiment at work again. What somebody has set since it was created stays, unless the new configuration changes it.

    ``whole``: nothing of it is done already."""
    row = replace(
        reopened(experiment.row, event.at),
        warning="",
        collect=False,
        progress=_mean(experiment, event.config) if whole else experiment.row.progress,
        queue_position=event.at,
        config=event.config.to_json(),
    )
    before, after = _fields(experiment.config), _fields(event.config)
    changed = {name: value for name, value in after.items() if value != before[name]}
    return replace(row, **changed) if changed else row


def _mean(experiment: ExperimentState, after: ExperimentConfig) -> float:
    """The progress of an experiment all of whose trials go on."""
    shares = [_progress_in(trial, experiment.config, after) for trial in experiment.trials]
    return sum(shares) / max(experiment.searcher.total, len(shares), 1)


def _progress_in(trial: Trial, before: ExperimentConfig, after: ExperimentConfig) -> float:
    """Of a trial that goes on, perhaps to another length; 0 where nobody knows how much longer than before it is to train."""
    old, new = before.searcher.full_length(), after.searcher.full_length()
    if old and new and before.searcher.time_name() == after.searcher.time_name():
        return min(1.0, trial.progress * old / new)
    return 0.0 if old or new or trial.state is State.COMPLETED else trial.progress


Endable = TypeVar("Endable", Experiment, Trial)


def reopened(row: Endable, at: float) -> Endable:
    """The row of what has ended, at work again from ``at`` on. The time between is no part of its duration."""
    ended = 0.0 if row.ended_at is None else max(0.0, at - row.ended_at)
    return replace(row, state=State.ACTIVE, ended_at=None, reason="", ended_seconds=row.ended_seconds + ended)


def _fields(config: ExperimentConfig) -> dict[str, Any]:
    """What of an experiment's row its configuration says."""
    resources = config.resources
    return {
        "name": config.name,
        "description": config.description or "",
        "labels": list(config.labels),
        "pool": resources.resource_pool,
        "weight": resources.weight,
        "max_slots": resources.max_slots,
        "slots_per_trial": resources.slots_per_trial,
        "priority": resources.priority,
    }


def _histories(past: Snapshot) -> dict[str, tuple[list[Attempt], list[Checkpoint]]]:
    """The attempts, in order, and the checkpoints of each trial, by its task."""
    histories: dict[str, tuple[list[Attempt], list[Checkpoint]]] = {}
    for row in in_order(past):
        if isinstance(row, Attempt):
            histories.setdefault(row.task_id, ([], []))[0].append(row)
        elif isinstance(row, Checkpoint):
            histories.setdefault(task_id(row.experiment_id, row.trial_id), ([], []))[1].append(row)
    return histories


def _trial_opened(
    experiment: ExperimentState,
    trial: Trial,
    event: events.GoOn,
    history: tuple[list[Attempt], list[Checkpoint]],
) -> list[Row]:
    attempts, checkpoints = history
    uuids = [checkpoint.uuid for checkpoint in usable_after(attempts, checkpoints)]
    latest = trial.latest_checkpoint if trial.latest_checkpoint in uuids else next(iter(uuids), None)
    again = reopened(freed(trial), event.at)
    again = replace(
        again,
        search=forgotten(again.search),
        hparams=_values(trial, experiment, event.config),
        latest_checkpoint=latest,
        early_exit="",
        warning="",
        progress=_progress_in(trial, experiment.config, event.config),
        restarts=0,
        lost=0,
        stalled=0,
        not_before=None,
    )
    return [again, trial_task(experiment.row, again), *attempts, *checkpoints]


def _values(trial: Trial, experiment: ExperimentState, config: ExperimentConfig) -> dict[str, Any]:
    """The trial's hyperparameters: those that the new configuration changes are drawn anew, the others keep their values."""
    before: Mapping[str, Any] = experiment.config.hyperparameters
    if config.hyperparameters == before:
        return trial.hparams
    drawn = sample(config.space, experiment.row.seed, trial.index)
    unchanged = {name for name in drawn if name in trial.hparams and before.get(name) == config.hyperparameters[name]}
    return {name: trial.hparams[name] if name in unchanged else value for name, value in drawn.items()}
