"""What may go next: the queue in front of the scheduler."""

from __future__ import annotations

from dethpc.domain.facts import Run
from dethpc.domain.ids import run_id
from dethpc.domain.states import RunState, State
from dethpc.engine.state import ClusterState, ExperimentState

WINDOW = 100
"""How many runs may wait in the scheduler's own queue, per pool that has no window of its own."""


def order(state: ClusterState) -> list[ExperimentState]:
    """Experiments with trials that wait for a run: smaller priority number first, then older first."""
    waiting = [
        e for e in state.experiments.values() if e.waiting and e.row.state is State.ACTIVE and not e.row.unmanaged
    ]
    return sorted(waiting, key=lambda e: (e.row.priority, e.row.created_at, e.row.id))


def next_runs(state: ClusterState, at: float) -> list[Run]:
    """Runs that should be submitted now, in order. An experiment's ``max_slots`` is never exceeded."""
    candidates = order(state)
    if not candidates:
        return []
    pending = dict(state.pending)
    runs: list[Run] = []
    for experiment in candidates:
        row = experiment.row
        room = state.windows.get(row.pool, WINDOW) - pending.get(row.pool, 0)
        if row.max_slots is not None:
            free = row.max_slots - experiment.live_slots
            room = min(room, free // max(1, row.slots_per_trial))
        for index in experiment.waiting[: max(0, room)]:
            trial = experiment.trials[index]
            runs.append(
                Run(
                    id=run_id(row.id, trial.id, trial.runs + 1),
                    experiment_id=row.id,
                    trial_id=trial.id,
                    n=trial.runs + 1,
                    state=RunState.SUBMITTING,
                    created_at=at,
                    slots=row.slots_per_trial,
                    pool=row.pool,
                )
            )
            pending[row.pool] = pending.get(row.pool, 0) + 1
    return runs
