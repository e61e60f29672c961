"""Decisions about experiments and their searches."""

from __future__ import annotations

import hashlib
import math
import uuid
from collections.abc import Iterable
from typing import Any

from typing_extensions import assert_never

from dethpc.config.searcher import WarmStart
from dethpc.domain.facts import Experiment, Run, SearchNote, Trial
from dethpc.domain.states import Intent, RunState, State
from dethpc.engine import events
from dethpc.engine.decision import Decision
from dethpc.engine.replace import replace
from dethpc.engine.state import ClusterState, ExperimentState, exit_of, waits_for_searcher
from dethpc.errors import NotFound, Refused
from dethpc.searcher.base import Action, Continue, Create, Note, Stop, Wait
from dethpc.searcher.custom import CustomSearch

DEFAULT_PRIORITY = 42

CHANGEABLE = ("name", "description", "notes", "labels", "archived", "max_slots", "weight", "priority", "project_id")


def create(state: ClusterState, event: events.CreateExperiment) -> Decision:
    config, resources = event.config, event.config.resources
    row = Experiment(
        id=event.id or state.next_experiment_id,
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
        unmanaged=event.unmanaged,
        metric=config.searcher.metric,
        smaller_is_better=config.searcher.smaller_is_better,
        queue_position=event.at,
    )
    searcher = state.build_searcher(config.searcher, config.space, row.seed)
    fresh = ExperimentState(row, config, searcher)
    decision = Decision([row])
    if not event.unmanaged:
        _act(state, fresh, searcher.start(), event.at, decision)
    return decision


def load(state: ClusterState, event: events.LoadExperiment) -> Decision:
    known = state.experiments.get(event.experiment.id)
    trials = event.trials[len(known.trials) if known else 0 :]
    return Decision([*([] if known else [event.experiment]), *trials])


def import_run(state: ClusterState, event: events.ImportRun) -> Decision:
    """Raises Refused when the run was taken in before."""
    known = next((e for e in state.experiments.values() if e.row.unmanaged and e.row.notes == event.run_id), None)
    if known is not None:
        raise Refused(f"run {event.run_id} is experiment {known.row.id} already")
    made = create(
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
            unmanaged=True,
        ),
    )
    experiment = made.rows[0]
    assert isinstance(experiment, Experiment)
    made.rows[0] = replace(experiment, notes=event.run_id)
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
        trial_id=trial.id,
        number=1,
        state=RunState.PENDING,
        created_at=event.at,
        slots=experiment.slots_per_trial,
        pool=experiment.pool,
        scheduler_job_id=event.job_id,
    )
    made.rows += [trial, run]
    return made


def _act(
    state: ClusterState, experiment: ExperimentState, actions: Iterable[Action], at: float, decision: Decision
) -> None:
    """Turn a searcher's actions into rows."""
    row, notes, created, frees = experiment.row, experiment.notes, 0, False
    for action in actions:
        if isinstance(action, Create):
            decision.rows.append(new_trial(state, experiment, action, state.next_trial_id + created, at))
            created += 1
        elif isinstance(action, Note):
            notes += 1
            decision.rows.append(SearchNote(row.id, notes, action.index, action.kind, action.data))
            continue
        elif isinstance(action, Stop):
            trial = experiment.trials[action.index]
            _end_trial(experiment, trial, State.STOPPING_COMPLETED, action.reason, at, decision)
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
    lengths = [*trial.search.get("lengths", ()), action.length]
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
        request_id=action.search.get("request_id") or str(uuid.uuid5(uuid.UUID(row.queue_id), str(action.index))),
        source_checkpoint=source,
    )


def _find(state: ClusterState, experiment_id: int) -> ExperimentState:
    try:
        return state.experiments[experiment_id]
    except KeyError:
        raise NotFound(f"no experiment {experiment_id}") from None


def activate(state: ClusterState, event: events.Activate) -> Decision:
    experiment = _find(state, event.experiment_id)
    row = experiment.row
    if row.state not in (State.ACTIVE, State.PAUSED):
        raise Refused(f"experiment {row.id} is {row.state.value}; only a PAUSED one can be activated")
    decision = Decision()
    if row.state is State.PAUSED:
        decision.rows.append(replace(row, state=State.ACTIVE, reason=""))
    for index in sorted(experiment.open):
        trial = experiment.trials[index]
        if trial.state is State.PAUSED:
            decision.rows.append(
                replace(trial, state=State.ACTIVE, reason=trial.reason if waits_for_searcher(trial) else "")
            )
    decision.then.append(events.Schedule(event.at))
    return decision


def pause(state: ClusterState, event: events.Pause) -> Decision:
    experiment = _find(state, event.experiment_id)
    row = experiment.row
    if row.state not in (State.ACTIVE, State.PAUSED):
        raise Refused(f"experiment {row.id} is {row.state.value}; only an ACTIVE one can be paused")
    if row.unmanaged:
        raise Refused(f"experiment {row.id} is unmanaged: it runs elsewhere, where dethpc cannot pause it")
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
    return _end(state, event.experiment_id, State.STOPPING_CANCELED, "cancelled by its owner", event.at)


def kill(state: ClusterState, event: events.Kill) -> Decision:
    return _end(state, event.experiment_id, State.STOPPING_KILLED, "killed by its owner", event.at)


def _end(state: ClusterState, experiment_id: int, how: State, reason: str, at: float) -> Decision:
    experiment = _find(state, experiment_id)
    row = experiment.row
    if row.state.terminal:
        raise Refused(f"experiment {row.id} has ended already ({row.state.value})")
    decision = Decision([replace(row, state=how, reason=reason)])
    for index in sorted(experiment.open):
        _end_trial(experiment, experiment.trials[index], how, reason, at, decision)
    if not experiment.open:
        decision.rows[0] = replace(row, state=how.end, reason=reason, ended_at=at)
    return decision


def kill_trial(state: ClusterState, event: events.KillTrial) -> Decision:
    trial = state.trial(event.trial_id)
    if trial is None:
        raise NotFound(f"no trial {event.trial_id}")
    if trial.state.terminal:
        raise Refused(f"trial {trial.id} has ended already ({trial.state.value})")
    decision = Decision()
    experiment = state.experiments[trial.experiment_id]
    _end_trial(experiment, trial, State.STOPPING_KILLED, "killed by its owner", event.at, decision)
    return decision


def _end_trial(
    experiment: ExperimentState, trial: Trial, how: State, reason: str, at: float, decision: Decision
) -> None:
    """Bring an open trial to its end: by way of its live run if it has one."""
    if trial.state.terminal or (trial.state.stopping and how is not State.STOPPING_KILLED):
        return
    if trial.index not in experiment.live:
        closed = replace(trial, state=how.end, reason=reason, ended_at=at)
        decision.rows.append(closed)
        decision.then.append(events.TrialClosed(trial.id, exit_of(closed), at))
        return
    decision.rows.append(replace(trial, state=how, reason=reason))
    if how in (State.STOPPING_KILLED, State.STOPPING_ERROR):
        kill_run(experiment, trial.index, reason, decision)
    else:
        stop_run(experiment, trial.index, reason, at, decision)


def stop_run(experiment: ExperimentState, index: int, reason: str, at: float, decision: Decision) -> None:
    run = experiment.live.get(index)
    if run is None or run.intent is not Intent.GO:
        return
    if run.state is RunState.RUNNING:
        decision.rows.append(replace(run, intent=Intent.STOP, intent_reason=reason, stopping_since=at))
    else:
        kill_run(experiment, index, reason, decision)  # nothing has begun, so nothing can be lost


def kill_run(experiment: ExperimentState, index: int, reason: str, decision: Decision) -> None:
    run: Run | None = experiment.live.get(index)
    if run is not None and run.intent is not Intent.KILL:
        decision.rows.append(replace(run, intent=Intent.KILL, intent_reason=reason))


def change(state: ClusterState, event: events.ChangeExperiment) -> Decision:
    experiment = _find(state, event.experiment_id)
    row = experiment.row
    unknown = sorted(set(event.changes) - set(CHANGEABLE))
    if unknown:
        raise Refused(f"cannot change {', '.join(unknown)}; changeable are {', '.join(CHANGEABLE)}")
    if "archived" in event.changes and not row.state.terminal:
        raise Refused(f"experiment {row.id} is {row.state.value}; only one that has ended can be archived")
    if not row.unmanaged:
        allowed(state, row, priority=event.changes.get("priority"), weight=event.changes.get("weight"))
    changed: dict[str, Any] = dict(event.changes)
    decision = Decision([replace(row, **changed)], [events.Schedule(event.at)])
    if "max_slots" in event.changes:
        _give_back(experiment, event.changes["max_slots"], event.at, decision)
    return decision


def allowed(state: ClusterState, row: Experiment, *, priority: int | None = None, weight: float | None = None) -> None:
    """Raises Refused when the pool's queue does not go by it, or the value is none."""
    kind = state.rules_of(row.pool).kind
    if priority is not None and kind != "priority":
        raise Refused(f"pool {row.pool} has the {kind} scheduler, to which priorities mean nothing{_INSTEAD[kind]}")
    if weight is not None and kind != "fair_share":
        raise Refused(f"pool {row.pool} has the {kind} scheduler, to which weights mean nothing{_INSTEAD[kind]}")
    if priority is not None and not 1 <= priority <= 99:
        raise Refused(f"priority {priority}: allowed are 1 (first) to 99 (last)")
    if weight is not None and not 0 < weight < math.inf:
        raise Refused(f"weight {weight}: allowed are numbers above 0")


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


def delete(state: ClusterState, event: events.Delete) -> Decision:
    row = _find(state, event.experiment_id).row
    if not row.state.terminal:
        raise Refused(f"experiment {row.id} is {row.state.value}; kill it before you delete it")
    return Decision([replace(row, state=State.DELETED)])


def trial_closed(state: ClusterState, event: events.TrialClosed) -> Decision:
    """The search goes on without the trial, or the experiment ends with it."""
    trial = state.trial(event.trial_id)
    assert trial is not None
    experiment = state.experiments[trial.experiment_id]
    row, decision = experiment.row, Decision()
    if not row.state.stopping and not row.state.terminal and not row.unmanaged:
        actions = experiment.searcher.exited(trial.index, event.how)
        _act(state, experiment, actions, event.at, decision)
        searching = not experiment.searcher.over
        if searching or any(isinstance(action, (Create, Continue)) for action in actions):
            decision.rows.append(replace(row, progress=experiment.searcher.progress))
            return decision
    if experiment.open:
        left = (experiment.trials[index] for index in experiment.open)
        decision.rows.append(replace(paused_with(row, left), progress=experiment.searcher.progress))
    elif not row.state.terminal:
        decision.rows.append(_ended(experiment, event.at))
    return decision


def paused_with(row: Experiment, left: Iterable[Trial]) -> Experiment:
    """The experiment, paused when every trial that is ``left`` is: it waits for its owner, and should look like it.

    Trials that wait for the searcher will only move when another has, so they do not count.
    """
    reasons: dict[str, None] = {}
    some = False
    for trial in left:
        if row.state is not State.ACTIVE or (trial.state is not State.PAUSED and not waits_for_searcher(trial)):
            return row
        if trial.state is State.PAUSED and not waits_for_searcher(trial):
            some = True
            if trial.reason:
                reasons[trial.reason] = None
    if not some:
        return row
    return replace(row, state=State.PAUSED, reason=f"{'; '.join(reasons)}; activate the experiment to go on")


def _ended(experiment: ExperimentState, at: float) -> Experiment:
    row = experiment.row
    row = replace(row, ended_at=at, progress=_trained(experiment))
    if row.state.stopping:
        return replace(row, state=row.state.end)
    completed = sum(trial.state is State.COMPLETED for trial in experiment.trials)
    if completed:
        return replace(row, state=State.COMPLETED, reason="", progress=1.0)
    if all(trial.state is State.CANCELED for trial in experiment.trials):
        return replace(row, state=State.CANCELED, reason="every trial was killed")
    last = next((t.reason for t in reversed(experiment.trials) if t.state is State.ERROR), "")
    return replace(row, state=State.ERROR, reason=f"no trial completed; the last error: {last}")


def _trained(experiment: ExperimentState) -> float:
    """How far an experiment came that ended before its search did: what its trials trained, of those that it would have had.

    To the searcher a trial that failed is done with; whoever looks at what is left of it wants to know what was trained.
    """
    planned = max(experiment.searcher.total, len(experiment.trials), 1)
    done = sum(1.0 if trial.state is State.COMPLETED else trial.progress for trial in experiment.trials)
    return min(1.0, done / planned)


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
        and not row.unmanaged
    ):
        actions = experiment.searcher.validated(trial.index, event.length, event.metric)
        _act(state, experiment, actions, event.at, decision)
    return decision


def parked(state: ClusterState, event: events.Parked) -> Decision:
    """A trial waits for its searcher and has given its slots back."""
    trial = state.trial(event.trial_id)
    assert trial is not None
    experiment, decision = state.experiments[trial.experiment_id], Decision()
    if waits_for_searcher(trial) and not trial.state.terminal and not experiment.row.state.stopping:
        _act(state, experiment, experiment.searcher.parked(trial.index), event.at, decision)
    return decision


def operate(state: ClusterState, event: events.Operate) -> Decision:
    """Raises Refused when the experiment is not open to a search method from outside, or does not understand the operations."""
    experiment = _find(state, event.experiment_id)
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
    _act(state, experiment, actions, event.at, decision)
    decision.then.append(events.Operated(row.id, event.at))
    return decision


def operated(state: ClusterState, event: events.Operated) -> Decision:
    experiment = state.experiments[event.experiment_id]
    row = experiment.row
    if experiment.searcher.over and not experiment.open and not row.state.terminal:
        return Decision([_ended(experiment, event.at)])
    return Decision()
