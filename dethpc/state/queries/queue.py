"""What readers ask of the job queue: which experiments want slots, and how many they have."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection, case, func, or_, select

from dethpc.domain.facts import Experiment, Run, Trial
from dethpc.domain.states import RunState, State, TaskKind
from dethpc.state import rows

_experiment = rows.table(Experiment).c
_trial = rows.table(Trial).c
_run = rows.table(Run).c


@dataclass(slots=True)
class Job:
    """An experiment in the queue."""

    id: int
    queue_id: str
    name: str
    owner: str
    pool: str
    created_at: float
    priority: int
    weight: float
    queue_position: float
    progress: float
    slots_per_trial: int
    slots_wanted: int = 0  # by all its trials that could train now
    slots_live: int = 0  # that its runs hold or wait for
    slots_running: int = 0


_COLUMNS = ("id", "queue_id", "name", "owner", "pool", "created_at", "priority", "weight", "queue_position", "progress")


def jobs(connection: Connection, pool: str | None = None) -> list[Job]:
    """Experiments that want slots, by pool and age; in which order they are served is the pool's matter."""
    in_queue = [_experiment.state == State.ACTIVE, _experiment.kind == TaskKind.TRIAL]
    if pool is not None:
        in_queue.append(_experiment.pool == pool)
    columns = [_experiment[name] for name in (*_COLUMNS, "slots_per_trial")]
    found = {
        row[0]: Job(*row)
        for row in connection.execute(
            select(*columns).where(*in_queue).order_by(_experiment.pool, _experiment.created_at, _experiment.id)
        )
    }
    ids = select(_experiment.id).where(*in_queue)
    wanting = (
        select(_trial.experiment_id, func.count())
        .where(_trial.experiment_id.in_(ids), _trial.state == State.ACTIVE)
        .group_by(_trial.experiment_id)
    )
    for experiment_id, count in connection.execute(wanting):
        found[experiment_id].slots_wanted = count * found[experiment_id].slots_per_trial
    running = func.sum(case((_run.state == RunState.RUNNING, _run.slots), else_=0))
    live = (
        select(_run.experiment_id, func.sum(_run.slots), running)
        .where(_run.experiment_id.in_(ids), or_(*(_run.state == state for state in _LIVE)))
        .group_by(_run.experiment_id)
    )
    for experiment_id, slots, slots_running in connection.execute(live):
        found[experiment_id].slots_live, found[experiment_id].slots_running = int(slots), int(slots_running)
    return list(found.values())


_LIVE = [state for state in RunState if state is not RunState.ENDED]
