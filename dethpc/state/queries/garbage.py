"""Checkpoints that a policy is to choose from, and those whose files a task is to remove."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from functools import cache
from operator import attrgetter
from typing import Any, NamedTuple

from sqlalchemy import Connection, String, and_, select, type_coerce

from dethpc.domain.facts import EVERYTHING, Checkpoint, Experiment, Run, Task, Trial
from dethpc.domain.states import CheckpointState, RunState, State, TaskKind
from dethpc.state import rows
from dethpc.state.queries.checkpoints import measured
from dethpc.state.queries.page import having

_experiment = rows.table(Experiment).c
_trial = rows.table(Trial).c
_task = rows.table(Task).c
_checkpoint = rows.table(Checkpoint).c
_run = rows.table(Run).c

_BROUGHT = (CheckpointState.COMPLETED, CheckpointState.PARTIALLY_DELETED, CheckpointState.DELETED)


class Ranked(NamedTuple):
    """A checkpoint as far as a policy looks at it. ``whole``: it has all of its files, and keeps them. ``value``: of the metric at
    its step, None without one."""

    uuid: str
    trial_id: int
    whole: bool
    reported_at: float
    storage: dict[str, Any]
    value: float | None


def experiments_to_collect(connection: Connection) -> list[Experiment]:
    """Those that have ended and whose policy has not chosen yet."""
    ended = [state for state in State if state.terminal and state.keeps_files]
    return rows.read(connection, Experiment, _experiment.collect.is_(True), _experiment.state.in_(ended))


def ids_of_ended(connection: Connection) -> list[int]:
    """Of all experiments that have ended and keep their files and some checkpoint."""
    ended = [state for state in State if state.terminal and state.keeps_files]
    some = select(_checkpoint.experiment_id).where(
        _checkpoint.state == CheckpointState.COMPLETED, _checkpoint.removing == ""
    )
    query = select(_experiment.id).where(_experiment.state.in_(ended), _experiment.id.in_(some.distinct()))
    return list(connection.scalars(query.order_by(_experiment.id)))


def ranked(connection: Connection, experiment: Experiment, states: Collection[CheckpointState]) -> list[Ranked]:
    """The experiment's checkpoints in these states, by its searcher's metric; none that a task is to remove whole."""
    where = (
        _checkpoint.experiment_id == experiment.id,
        _checkpoint.state.in_(list(states)),
        _checkpoint.removing != EVERYTHING,
    )
    values = measured(connection, where, experiment.metric)
    # As text, and each distinct one read once: an experiment may have 100,000.
    whole = and_(_checkpoint.state == CheckpointState.COMPLETED, _checkpoint.removing == "")
    checkpoints = connection.execute(
        select(
            _checkpoint.uuid,
            _checkpoint.trial_id,
            _checkpoint.reported_at,
            whole,
            type_coerce(_checkpoint.storage, String),
        ).where(*where)
    )
    place = cache(json.loads)
    return [
        Ranked(uuid, trial_id, bool(whole), reported_at, place(storage), values.get(uuid))
        for uuid, trial_id, reported_at, whole, storage in checkpoints
    ]


def checkpoints_by_id(connection: Connection, uuids: Sequence[str]) -> list[Checkpoint]:
    """Those that there are."""
    return having(connection, Checkpoint, _checkpoint.uuid, uuids)


def with_origins(connection: Connection, uuids: Sequence[str]) -> list[tuple[Checkpoint, State]]:
    """Those that there are, each with the state of its experiment, which may be deleted."""
    checkpoints = checkpoints_by_id(connection, uuids)
    ids = {row.experiment_id for row in checkpoints}
    query = select(_experiment.id, _experiment.state).where(_experiment.id.in_(ids))
    states = dict(connection.execute(query).all())
    return [(row, states.get(row.experiment_id, State.DELETED)) for row in checkpoints]


def sources_of_unsaved(connection: Connection) -> set[str]:
    """Checkpoints at which trials began that ended with none of their own: to continue them takes these."""
    ended = [state for state in State if state is not State.COMPLETED and state.keeps_files]
    with_files = select(_experiment.id).where(_experiment.state.in_([state for state in State if state.keeps_files]))
    query = select(_trial.source_checkpoint).where(
        _trial.state.in_(ended),
        _trial.source_checkpoint.is_not(None),
        _trial.latest_checkpoint.is_(None),
        _trial.experiment_id.in_(with_files),
    )
    return set(connection.scalars(query))


def removals(connection: Connection, pool: str | None = None, most: int = 1) -> list[Checkpoint]:
    """Checkpoints of which a task is still to remove files, those of one pool's experiments, or of all; the oldest first."""
    where = [_checkpoint.removing > ""]
    if pool is not None:
        where.append(_checkpoint.experiment_id.in_(select(_experiment.id).where(_experiment.pool == pool)))
    query = rows.query(Checkpoint, *where).order_by(_checkpoint.reported_at, _checkpoint.uuid).limit(most)
    return [Checkpoint(*row) for row in connection.execute(query)]


def pools_of_removals(connection: Connection) -> dict[str, Experiment]:
    """The pools for which ``removals`` has any, each with the newest experiment that has some."""
    having_some = select(_checkpoint.experiment_id).where(_checkpoint.removing > "").distinct()
    return {row.pool: row for row in rows.read(connection, Experiment, _experiment.id.in_(having_some))}


def spooled(connection: Connection, uuids: Sequence[str], pool: str | None = None) -> list[Checkpoint]:
    """Those of ``uuids`` that are known and whose trial has no run now, which may read them: they are to be brought, or were
    deleted; what is damaged stays as it is. Of one pool's experiments, or of all, the oldest first."""
    live = select(_run.task_id).where(_run.state != RunState.ENDED)
    busy = set(connection.scalars(select(_task.trial_id).where(_task.id.in_(live)))) if uuids else set()
    checkpoints = [
        row
        for row in checkpoints_by_id(connection, uuids)
        if row.trial_id not in busy and not row.removing and row.state in _BROUGHT
    ]
    if pool is not None and checkpoints:
        ids = {row.experiment_id for row in checkpoints}
        own = set(connection.scalars(select(_experiment.id).where(_experiment.id.in_(ids), _experiment.pool == pool)))
        checkpoints = [row for row in checkpoints if row.experiment_id in own]
    return sorted(checkpoints, key=attrgetter("reported_at", "uuid"))


def pools_of_spooled(connection: Connection, uuids: Sequence[str]) -> dict[str, Experiment]:
    """As ``pools_of_removals``, of those that wait in the spool."""
    ids = {row.experiment_id for row in spooled(connection, uuids)}
    return {row.pool: row for row in rows.read(connection, Experiment, _experiment.id.in_(ids))} if ids else {}


def failed_deletions(connection: Connection) -> dict[int, tuple[float, float]]:
    """Experiments whose last deletion a task could not finish, and nobody stopped: when they were first to be deleted, and when
    that task ended."""
    failed = select(_experiment.id).where(_experiment.state == State.DELETE_FAILED)
    removing = (_task.kind == TaskKind.CHECKPOINT_GC, _task.experiment_id.in_(failed))
    by_experiment: dict[int, list[Task]] = {}
    for task in connection.execute(rows.query(Task, *removing).order_by(_task.created_at)):
        by_experiment.setdefault(task.experiment_id, []).append(Task(*task))
    return {
        experiment: (tasks[0].created_at, tasks[-1].ended_at or 0.0)
        for experiment, tasks in by_experiment.items()
        if tasks[-1].state is State.ERROR
    }


def last_collection(connection: Connection) -> Task | None:
    """The newest task that was to remove files of checkpoints and belongs to no experiment."""
    query = rows.query(Task, _task.kind == TaskKind.CHECKPOINT_GC, _task.experiment_id.is_(None))
    return rows.first(connection, Task, query.order_by(_task.created_at.desc()).limit(1))
