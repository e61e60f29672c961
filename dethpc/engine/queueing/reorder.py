"""What users change about the queue: priorities, weights, places, pools."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Union

from dethpc.config.experiment import ExperimentConfig
from dethpc.domain.facts import Experiment, Row, Task
from dethpc.domain.states import RunState
from dethpc.engine import events
from dethpc.engine.decision import Decision
from dethpc.engine.experiments import allowed
from dethpc.engine.queueing.queue_index import key
from dethpc.engine.state import ClusterState
from dethpc.engine.stop import kill_run
from dethpc.errors import NotFound, Refused

Entry = Union[Experiment, Task]
"""The row of a job, which says where in the queue it is."""


def update(state: ClusterState, event: events.UpdateQueue) -> Decision:
    """All changes or none. Raises NotFound for a job that is not in the queue, Refused for what its pool's scheduler cannot do."""
    changed: dict[str, Entry] = {}
    decision = Decision()
    for change in event.changes:
        row = _entry(state, changed, change.queue_id)
        given = [name for name in _FIELDS if getattr(change, name) is not None]
        if len(given) != 1:
            raise Refused(f"job of {_name(row)}: change one of {', '.join(_FIELDS)} at a time, not {given or 'none'}")
        if change.pool is not None:
            _move_to(state, row, change.pool, changed, decision)
            continue
        allowed(state, row, priority=change.priority, weight=change.weight)
        if change.priority is not None:
            changed[row.queue_id] = _with(row, priority=change.priority)
        elif change.weight is not None:
            changed[row.queue_id] = _with(row, weight=change.weight)
        elif change.ahead_of is not None:
            _move(state, row, change.ahead_of, 0, changed)
        elif change.behind_of is not None:
            _move(state, row, change.behind_of, 1, changed)
    rows: list[Row] = list(changed.values())
    decision.rows[:0] = rows
    decision.then.append(events.Schedule(event.at))
    return decision


_FIELDS = ("priority", "weight", "pool", "ahead_of", "behind_of")


def _entry(state: ClusterState, changed: dict[str, Entry], queue_id: str) -> Entry:
    if queue_id in changed:
        return changed[queue_id]
    job = state.jobs.get(queue_id)
    if job is None or not job.queued:
        raise NotFound(f"{_name(job.entry) if job is not None else f'job {queue_id}'} is not in the queue")
    return job.entry


def _with(row: Entry, **given: Any) -> Entry:
    """The row with this, which an experiment's configuration says too."""
    if isinstance(row, Experiment):
        given["config"] = ExperimentConfig.from_json(row.config).with_changes(given).to_json()
    return replace(row, **given)


def _name(entry: Entry) -> str:
    return f"{'experiment' if isinstance(entry, Experiment) else 'task'} {entry.id}"


def _move(state: ClusterState, row: Entry, anchor_id: str, side: int, changed: dict[str, Entry]) -> None:
    """Put the job just before (``side`` 0) or just behind (1) another, whose priority it takes."""
    anchor, kind = _entry(state, changed, anchor_id), state.rules_of(row.pool).kind
    if kind != "priority":
        raise Refused(
            f"pool {row.pool} has the {kind} scheduler; jobs can only be moved in pools with the priority scheduler"
        )
    if anchor.queue_id == row.queue_id:
        raise Refused(f"the job of {_name(row)} cannot be ahead of or behind itself")
    if anchor.pool != row.pool:
        raise Refused(
            f"{_name(row)} is in pool {row.pool} and {_name(anchor)} in pool {anchor.pool}; "
            "a job can only move within its own pool"
        )
    others = sorted(
        (
            entry
            for entry in (changed.get(id, job.entry) for id, job in state.jobs.items())
            if entry.pool == row.pool
            and entry.priority == anchor.priority
            and entry.queue_id != row.queue_id
            and entry.kind.submitted
            and not entry.state.terminal
        ),
        key=lambda entry: key(entry, "priority"),
    )
    at = [entry.queue_id for entry in others].index(anchor.queue_id) + side
    before = others[at - 1].queue_position if at > 0 else None
    after = others[at].queue_position if at < len(others) else None
    position = _between(before, after)
    row = replace(_with(row, priority=anchor.priority), queue_position=position)
    changed[row.queue_id] = row
    if position in (before, after):  # no number is left between them
        others.insert(at, row)
        for n, entry in enumerate(others):
            changed[entry.queue_id] = replace(entry, queue_position=others[0].queue_position + n)


def _between(before: float | None, after: float | None) -> float:
    if before is None:
        assert after is not None
        return after - 1
    return before + 1 if after is None else (before + after) / 2


def _move_to(state: ClusterState, row: Entry, pool: str, changed: dict[str, Entry], decision: Decision) -> None:
    """Its runs start in another pool from now on. Those that wait are withdrawn and submitted there; running ones go on."""
    job = state.jobs[row.queue_id]
    changed[row.queue_id] = _with(row, pool=pool)
    for member, run in job.live.items():
        if run.state is not RunState.RUNNING and run.pool != pool:
            kill_run(job, member, f"moved to resource pool {pool}", decision)
