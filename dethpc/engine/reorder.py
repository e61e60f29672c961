"""What users change about the queue: priorities, weights, places, pools."""

from __future__ import annotations

from dethpc.domain.facts import Experiment, Row
from dethpc.domain.states import RunState, State
from dethpc.engine import events
from dethpc.engine.decision import Decision
from dethpc.engine.experiments import allowed
from dethpc.engine.queue_index import key
from dethpc.engine.replace import replace
from dethpc.engine.state import ClusterState
from dethpc.engine.stop import kill_run
from dethpc.errors import NotFound, Refused


def update(state: ClusterState, event: events.UpdateQueue) -> Decision:
    """All changes or none. Raises NotFound for a job that is not in the queue, Refused for what its pool's scheduler cannot do."""
    changed: dict[int, Experiment] = {}
    decision = Decision()
    for change in event.changes:
        row = _row(state, changed, change.experiment_id)
        given = [name for name in _FIELDS if getattr(change, name) is not None]
        if len(given) != 1:
            raise Refused(
                f"job of experiment {row.id}: change one of {', '.join(_FIELDS)} at a time, not {given or 'none'}"
            )
        if change.pool is not None:
            _move_to(state, row, change.pool, changed, decision)
            continue
        allowed(state, row, priority=change.priority, weight=change.weight)
        if change.priority is not None:
            changed[row.id] = replace(row, priority=change.priority)
        elif change.weight is not None:
            changed[row.id] = replace(row, weight=change.weight)
        elif change.ahead_of is not None:
            _move(state, row, change.ahead_of, 0, changed)
        elif change.behind_of is not None:
            _move(state, row, change.behind_of, 1, changed)
    rows: list[Row] = list(changed.values())
    decision.rows[:0] = rows
    decision.then.append(events.Schedule(event.at))
    return decision


_FIELDS = ("priority", "weight", "pool", "ahead_of", "behind_of")


def _row(state: ClusterState, changed: dict[int, Experiment], experiment_id: int) -> Experiment:
    if experiment_id in changed:
        return changed[experiment_id]
    experiment = state.experiments.get(experiment_id)
    if experiment is None or experiment.row.state is not State.ACTIVE or not experiment.row.kind.submitted:
        raise NotFound(f"experiment {experiment_id} is not in the queue")
    return experiment.row


def _move(state: ClusterState, row: Experiment, anchor_id: int, side: int, changed: dict[int, Experiment]) -> None:
    """Put the job just before (``side`` 0) or just behind (1) another, whose priority it takes."""
    anchor, kind = _row(state, changed, anchor_id), state.rules_of(row.pool).kind
    if kind != "priority":
        raise Refused(
            f"pool {row.pool} has the {kind} scheduler; jobs can only be moved in pools with the priority scheduler"
        )
    if anchor.id == row.id:
        raise Refused(f"the job of experiment {row.id} cannot be ahead of or behind itself")
    if anchor.pool != row.pool:
        raise Refused(
            f"experiment {row.id} is in pool {row.pool} and experiment {anchor.id} in pool {anchor.pool}; "
            "a job can only move within its own pool"
        )
    others = sorted(
        (
            each
            for each in (changed.get(e.row.id, e.row) for e in state.active())
            if each.pool == row.pool and each.priority == anchor.priority and each.id != row.id and each.kind.submitted
        ),
        key=lambda each: key(each, "priority"),
    )
    at = [each.id for each in others].index(anchor.id) + side
    before = others[at - 1].queue_position if at > 0 else None
    after = others[at].queue_position if at < len(others) else None
    position = _between(before, after)
    row = replace(row, priority=anchor.priority, queue_position=position)
    changed[row.id] = row
    if position in (before, after):  # no number is left between them
        others.insert(at, row)
        for n, each in enumerate(others):
            changed[each.id] = replace(each, queue_position=others[0].queue_position + n)


def _between(before: float | None, after: float | None) -> float:
    if before is None:
        assert after is not None
        return after - 1
    return before + 1 if after is None else (before + after) / 2


def _move_to(
    state: ClusterState, row: Experiment, pool: str, changed: dict[int, Experiment], decision: Decision
) -> None:
    """Its trials start in another pool from now on. Runs that wait are withdrawn and submitted there; running ones go on."""
    experiment = state.experiments[row.id]
    changed[row.id] = replace(row, pool=pool, config=experiment.config.in_pool(pool).to_json())
    for index, run in experiment.live.items():
        if run.state is not RunState.RUNNING and run.pool != pool:
            kill_run(experiment, index, f"moved to resource pool {pool}", decision)
