"""Decisions about experiments and their searches."""

from __future__ import annotations

import math
from dataclasses import replace

from dethpc.domain.facts import Experiment, Run, Task
from dethpc.domain.ids import task_id
from dethpc.domain.states import RunState, State, TaskKind
from dethpc.domain.text.names import made_up
from dethpc.engine import events
from dethpc.engine.changes import UNSET
from dethpc.engine.decision import Decision
from dethpc.engine.first_trial import freed
from dethpc.engine.queueing.jobs import ExperimentState, waits_for_searcher
from dethpc.engine.search import act, new_trial
from dethpc.engine.state import ClusterState
from dethpc.engine.stop import end_trial, stop_run, trial_task
from dethpc.errors import NotFound, Refused
from dethpc.searcher.base import Create

DEFAULT_PRIORITY = 42
LOWEST_PRIORITY = 99


def create(state: ClusterState, event: events.CreateExperiment) -> Decision:
    named = event.config.name.strip()
    config = event.config if named else event.config.with_name(made_up(event.queue_id))
    resources = config.resources
    row = Experiment(
        id=state.next_experiment_id,
        owner=event.owner,
        config=config.to_json(),
        original_config=event.original_config,
        state=State.ACTIVE if event.activate else State.PAUSED,
        created_at=event.at,
        started_at=event.at,
        seed=event.seed,
        queue_id=event.queue_id,
        context_sha256=event.context_sha256,
        name=config.name,
        description=config.description or "",
        labels=list(config.labels),
        project_id=event.project_id,
        pool=resources.resource_pool,
        priority=resources.priority or DEFAULT_PRIORITY,
        weight=resources.weight,
        max_slots=resources.max_slots,
        slots_per_trial=resources.slots_per_trial,
        parent_id=event.parent_id,
        kind=event.kind,
        imported_run=event.imported_run,
        external_id=event.external_id,
        metric=config.searcher.metric,
        smaller_is_better=config.searcher.smaller_is_better,
        queue_position=event.at,
        user_id=event.user_id,
    )
    searcher = state.build_searcher(config.searcher, config.space, row.seed)
    fresh = ExperimentState(row, config, searcher)
    decision = Decision([row])
    if event.kind.submitted:
        act(state, fresh, searcher.start(), event.at, decision)
    return decision


def load(state: ClusterState, event: events.LoadExperiment) -> Decision:
    """Raises NotFound for one that was deleted."""
    if event.experiment.state is State.DELETED:
        raise NotFound(f"no experiment {event.experiment.id}")
    existing = state.experiments.get(event.experiment.id)
    trials = event.trials[len(existing.trials) if existing else 0 :]
    then = [] if event.then is None else [event.then]
    return Decision(then=then, loaded=[*([] if existing else [event.experiment]), *trials])


def import_run(state: ClusterState, event: events.ImportRun) -> Decision:
    """An experiment of one trial. Whether the run was imported before, is for the caller to see: it may have ended long ago."""
    decision = create(
        state,
        events.CreateExperiment(
            owner=event.owner,
            config=event.config,
            original_config=event.original_config,
            context_sha256=event.context_sha256,
            seed=event.seed,
            queue_id=event.queue_id,
            activate=True,
            at=event.at,
            kind=TaskKind.IMPORTED_TRIAL,
            imported_run=event.run_id,
        ),
    )
    experiment = decision.rows[0]
    assert isinstance(experiment, Experiment)
    searcher = state.build_searcher(event.config.searcher, event.config.space, event.seed)
    trial = new_trial(
        state,
        ExperimentState(experiment, event.config, searcher),
        Create(0, event.hparams, event.search),
        state.next_trial_id,
        event.at,
    )
    trial = replace(trial, seed=event.seed, runs=1)
    run = Run(
        id=event.run_id,
        experiment_id=experiment.id,
        task_id=task_id(experiment.id, trial.id),
        number=1,
        state=RunState.PENDING,
        created_at=event.at,
        slots=experiment.slots_per_trial,
        pool=experiment.pool,
        scheduler_job_id=event.job_id,
    )
    decision.rows += [trial, trial_task(experiment, trial), run]
    return decision


def activate(state: ClusterState, event: events.Activate) -> Decision:
    experiment = state.experiment(event.experiment_id)
    row = experiment.row
    if row.state not in (State.ACTIVE, State.PAUSED):
        ended = row.state.terminal and row.state.keeps_files and row.kind.submitted
        instead = f". To go on with one that has ended: det experiment continue {row.id}" if ended else ""
        raise Refused(f"experiment {row.id} is {row.state.value}; only a PAUSED one can be activated{instead}")
    decision = Decision()
    if row.state is State.PAUSED:
        decision.rows.append(replace(row, state=State.ACTIVE, reason=""))
    for index in sorted(experiment.open):
        trial = freed(experiment.trials[index])
        if trial.state is State.PAUSED:
            trial = replace(trial, state=State.ACTIVE, reason=trial.reason if waits_for_searcher(trial) else "")
        if trial is not experiment.trials[index]:
            decision.rows.append(trial)
    decision.then.append(events.Schedule(event.at))
    return decision


def pause(state: ClusterState, event: events.Pause) -> Decision:
    experiment = state.experiment(event.experiment_id)
    row = experiment.row
    if row.state not in (State.ACTIVE, State.PAUSED):
        raise Refused(f"experiment {row.id} is {row.state.value}; only an ACTIVE one can be paused")
    if not row.kind.submitted:
        raise Refused(f"experiment {row.id} is unmanaged: it runs outside dethpc, which cannot pause it")
    decision = Decision()
    if row.state is State.ACTIVE:
        decision.rows.append(replace(row, state=State.PAUSED, reason="paused by its owner"))
        for index in sorted(experiment.open):
            trial = experiment.trials[index]
            if trial.state is State.ACTIVE:
                decision.rows.append(replace(trial, state=State.PAUSED))
            stop_run(experiment, index, "pause", event.at, decision)
    return decision


def cancel(state: ClusterState, event: events.Cancel) -> Decision:
    return _end(state, event.experiment_id, State.STOPPING_CANCELED, "cancelled by a user", event.at)


def kill(state: ClusterState, event: events.Kill) -> Decision:
    return _end(state, event.experiment_id, State.STOPPING_KILLED, "killed by a user", event.at)


def _end(state: ClusterState, experiment_id: int, how: State, reason: str, at: float) -> Decision:
    experiment = state.experiment(experiment_id)
    row = experiment.row
    if row.state.terminal or row.state is State.DELETING:
        return Decision()  # scripts race with the end
    decision = Decision([replace(row, state=how, reason=reason)])
    for index in sorted(experiment.open):
        end_trial(experiment, experiment.trials[index], how, reason, at, decision)
    if not experiment.open:
        decision.rows[0] = replace(row, state=how.end, reason=reason, ended_at=at, collect=row.kind.submitted)
    return decision


def kill_trial(state: ClusterState, event: events.KillTrial) -> Decision:
    trial = state.trial(event.trial_id)
    if trial is None:
        raise NotFound(f"no trial {event.trial_id}")
    if trial.state.terminal:
        return Decision()
    decision = Decision()
    experiment = state.experiments[trial.experiment_id]
    end_trial(experiment, trial, State.STOPPING_KILLED, "killed by a user", event.at, decision)
    return decision


def change(state: ClusterState, event: events.ChangeExperiment) -> Decision:
    experiment = state.experiment(event.experiment_id)
    row = experiment.row
    changes = event.changes
    if changes.archived is not UNSET and not row.state.terminal:
        raise Refused(f"experiment {row.id} is {row.state.value}; only one that has ended can be archived")
    if row.kind.submitted:
        priority = None if changes.priority is UNSET else changes.priority
        allowed(state, row, priority=priority, weight=None if changes.weight is UNSET else changes.weight)
    given = changes.given()
    config = experiment.config.with_changes(given)
    if config is not experiment.config:
        given["config"] = config.to_json()
    changed = replace(row, **given)
    decision = Decision([changed], [events.Schedule(event.at)])
    if changes.max_slots is not UNSET:
        _give_back(experiment, changes.max_slots, event.at, decision)
    return decision


def allowed(
    state: ClusterState, row: Experiment | Task, *, priority: int | None = None, weight: float | None = None
) -> None:
    """Raises Refused when the pool's queue does not go by it, or the value is invalid."""
    kind = state.rules_of(row.pool).kind
    if priority is not None and kind != "priority":
        raise Refused(f"pool {row.pool} has the {kind} scheduler, which ignores priorities{_INSTEAD[kind]}")
    if weight is not None and kind != "fair_share":
        raise Refused(f"pool {row.pool} has the {kind} scheduler, which ignores weights{_INSTEAD[kind]}")
    if priority is not None and not 1 <= priority <= LOWEST_PRIORITY:
        raise Refused(f"priority {priority} is invalid: it must be from 1 (first) to {LOWEST_PRIORITY} (last)")
    if weight is not None and not 0 < weight < math.inf:
        raise Refused(f"weight {weight} is invalid: it must be a number above 0")


_INSTEAD = {"priority": "; set a priority", "fair_share": "; set a weight", "fifo": ""}


def _give_back(experiment: ExperimentState, max_slots: int | None, at: float, decision: Decision) -> None:
    """What a new, smaller ``max_slots`` has no room for: runs that wait first, then the newest."""
    surplus = 0 if max_slots is None else experiment.live_slots - max_slots
    waiting_first = sorted(experiment.live.items(), key=lambda item: (item[1].state is RunState.RUNNING, -item[0]))
    for index, run in waiting_first:
        if surplus <= 0:
            return
        surplus -= run.slots
        stop_run(experiment, index, f"max_slots is {max_slots} now", at, decision)
