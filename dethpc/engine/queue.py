"""What may go next: the queue in front of the scheduler.

A pool's queue has an order (priority and position, or age, or shares by weight). The first of it, as many runs as the pool's
window says, wait in the scheduler's own queue, and beyond that what could start at once on slots that are free. So a large trial
that must wait does not keep the slots from a smaller one behind it, until it has waited for ``PATIENCE``.
"""

from __future__ import annotations

import bisect
import heapq
from collections import Counter
from collections.abc import Iterator, Sequence

from dethpc.domain.facts import PoolState, Row, Run
from dethpc.domain.ids import run_id
from dethpc.domain.states import Intent, RunState
from dethpc.engine import events
from dethpc.engine.decision import Decision
from dethpc.engine.nice import assign
from dethpc.engine.pools import TURN, Free
from dethpc.engine.queue_index import Key, key
from dethpc.engine.replace import replace
from dethpc.engine.state import ClusterState, ExperimentState

LEAST_WINDOW, LARGEST_WINDOW = 16, 1000
"""How many runs may wait in the scheduler's own queue, per pool that has no window of its own."""

PATIENCE = 3600.0
"""Seconds that a run which finds no room lets others overtake it."""

REORDER_AT_ONCE = 16
"""Jobs whose place in the scheduler's queue is changed, or taken away, in one cycle: each costs the scheduler a request."""


def schedule(state: ClusterState, event: events.Schedule) -> Decision:
    """Runs that should be submitted now. An experiment's ``max_slots`` is never exceeded."""
    rows: list[Row] = []
    for pool in list(state.places.lists):
        room = _Room(state, pool, event.at)
        rows += _shared(state, pool, room, event.at) if _shares(state, pool) else _ordered(state, pool, room, event.at)
    return Decision(rows)


def _shares(state: ClusterState, pool: str) -> bool:
    return state.rules_of(pool).kind == "fair_share"


class _Room:
    """How much more of a pool's queue may go to the scheduler: the first of it, and what could start at once."""

    def __init__(self, state: ClusterState, pool: str, at: float) -> None:
        seen = state.pools.get(pool)
        self._window = window(state, pool)
        self._free = Free.of(seen.node_slots, seen.free) if seen is not None else Free(0, [])
        self._overtaking = True
        if self._free.slots:
            for run in state.fresh.get(pool, {}).values():
                self._free.place(run.slots)
            for run in state.pending.get(pool, {}).values():
                if not self._free.place(run.slots) and at - run.created_at > PATIENCE:
                    self._overtaking = False

    def full(self, ahead: int) -> bool:
        """Whether nothing more may go that has so many runs ahead of it among those that wait in the scheduler's queue."""
        return ahead >= self._window and not (self._overtaking and self._free.slots)

    def take(self, slots: int, ahead: int) -> bool:
        """Once refused, a size stays refused for all that come later."""
        starts = bool(self._free.slots) and self._free.place(slots)
        return ahead < self._window or (starts and self._overtaking)


def window(state: ClusterState, pool: str) -> int:
    fixed, seen = state.rules_of(pool).window, state.pools.get(pool)
    return fixed if fixed is not None else seen.window if seen is not None else LEAST_WINDOW


def _ordered(state: ClusterState, pool: str, room: _Room, at: float) -> Iterator[Row]:
    """From the heads of the lists, one for each size of trial, always the one that comes first."""
    lists, kind = state.places.of(pool), state.rules_of(pool).kind
    pending = state.pending.get(pool, {}).values()
    waiting = sorted(key(state.experiments[run.experiment_id].row, kind) for run in pending)
    steps_back = _steps_back(state, pool)
    heads = [(keys[0], slots, 0) for slots, keys in lists.items()]
    heapq.heapify(heads)
    sent = 0
    while heads:
        place, slots, n = heapq.heappop(heads)
        experiment = state.experiments[place[-1]]
        ahead = bisect.bisect_right(waiting, place) + sent
        if room.full(ahead):
            return
        for index in experiment.waiting[: experiment.room]:
            if not room.take(slots, ahead):
                break
            yield from _run(experiment, index, pool, at, steps_back)
            sent, ahead = sent + 1, ahead + 1
        else:
            if n + 1 < len(lists[slots]):
                heapq.heappush(heads, (lists[slots][n + 1], slots, n + 1))


def _shared(state: ClusterState, pool: str, room: _Room, at: float) -> Iterator[Row]:
    """Always the experiment that will have had least for its weight when the run is over.

    The walk goes over runs that wait in the scheduler's queue already and runs that might, as they should start. Of the experiments
    that have nothing in the pool yet, only those are looked at whose turn may have come.
    """
    turn, steps_back = _turn(state, pool), _steps_back(state, pool)
    busy, floor = state.busy.get(pool, {}), _least_served(state, pool, at)
    there = Counter(run.experiment_id for run in state.pending.get(pool, {}).values())
    queue: list[tuple[float, float, int, int, float]] = []
    for id in busy:
        experiment = state.experiments[id]
        first = experiment.served(at) + _cost(experiment, turn, experiment.running_slots)
        queue.append((first, experiment.row.created_at, id, 0, experiment.served(at)))
    lists = state.places.of(pool)
    newcomers = [(floor + keys[0][1] * slots * turn, -1.0, slots, 0, 0.0) for slots, keys in lists.items()]
    queue += newcomers
    heapq.heapify(queue)
    refused: set[int] = set()
    ahead = 0
    while queue and not room.full(ahead):
        after, created_at, id, n, had = heapq.heappop(queue)
        if created_at < 0:  # no experiment, but the next of a list, not before which its turn comes
            slots, keys = id, lists[id]
            if slots in refused:
                continue
            if n + 1 < len(keys):
                heapq.heappush(queue, (floor + keys[n + 1][1] * slots * turn, -1.0, slots, n + 1, 0.0))
            experiment = state.experiments[keys[n][-1]]
            if experiment.row.id not in busy:
                # Who had no use for its share in the past has no claim on it now.
                had = max(experiment.row.served, floor)
                first = had + _cost(experiment, turn)
                heapq.heappush(queue, (first, experiment.row.created_at, experiment.row.id, 0, had))
            continue
        experiment = state.experiments[id]
        row, more = experiment.row, n - there[id]
        if more >= 0:
            if (
                experiment.place is None
                or row.pool != pool
                or more >= experiment.room
                or row.slots_per_trial in refused
            ):
                continue
            if not room.take(row.slots_per_trial, ahead):
                refused.add(row.slots_per_trial)
                continue
            if more == 0 and not experiment.live and had > row.served:
                yield replace(row, served=had)
            yield from _run(experiment, experiment.waiting[more], pool, at, steps_back)
        ahead += 1
        heapq.heappush(queue, (after + _cost(experiment, turn), created_at, id, n + 1, had))


def served(state: ClusterState, event: events.Served) -> Decision:
    row = state.experiments[event.experiment_id].row
    return Decision([replace(row, served=row.served + event.slot_seconds / row.weight)])


def _cost(experiment: ExperimentState, turn: float, beside: int = 0) -> float:
    """What a run counts for its experiment's share, and ``beside`` it so many slots."""
    return (beside + experiment.row.slots_per_trial) * turn / experiment.row.weight


def _turn(state: ClusterState, pool: str) -> float:
    seen = state.pools.get(pool)
    return seen.turn if seen is not None and seen.turn else TURN


def _least_served(state: ClusterState, pool: str, at: float) -> float:
    """Of the experiments that have runs in the pool: where a newcomer begins."""
    return min((state.experiments[id].served(at) for id in state.busy.get(pool, ())), default=0.0)


def _steps_back(state: ClusterState, pool: str) -> list[tuple[Key, int]]:
    """Runs of the pool that step back in the scheduler's queue: what joins it behind them steps back as far."""
    kind, runs = state.rules_of(pool).kind, state.pending.get(pool, {}).values()
    return [(key(state.experiments[run.experiment_id].row, kind), run.nice) for run in runs if run.nice]


def _run(
    experiment: ExperimentState, index: int, pool: str, at: float, steps_back: Sequence[tuple[Key, int]]
) -> Iterator[Row]:
    own = experiment.place.key if experiment.place is not None else None
    row, trial = experiment.row, experiment.trials[index]
    n = trial.runs + 1
    yield replace(trial, runs=n)
    yield Run(
        id=run_id(row.id, trial.id, n),
        experiment_id=row.id,
        trial_id=trial.id,
        number=n,
        state=RunState.SUBMITTING,
        created_at=at,
        slots=row.slots_per_trial,
        pool=pool,
        nice=max((nice for other, nice in steps_back if own is None or other <= own), default=0),
    )


def order(state: ClusterState, pool: str) -> list[ExperimentState]:
    """Experiments that want another run in the pool, as they will get it."""
    waiting = [state.experiments[id] for keys in state.places.of(pool).values() for *_, id in keys]
    if not _shares(state, pool):
        return sorted(waiting, key=lambda e: key(e.row, state.rules_of(pool).kind))
    return sorted(
        waiting, key=lambda e: ((e.live_slots + e.row.slots_per_trial) / e.row.weight, e.row.created_at, e.row.id)
    )


# --- inside the scheduler's own queue


def in_order(state: ClusterState, pool: str, at: float) -> list[Run]:
    """The pool's runs that wait in the scheduler's queue, as they should start."""
    runs = [run for run in state.pending.get(pool, {}).values() if run.intent is Intent.GO]
    index = {run.id: state.trial_index[run.trial_id][1] for run in runs}
    if not _shares(state, pool):
        kind = state.rules_of(pool).kind
        return sorted(runs, key=lambda run: (key(state.experiments[run.experiment_id].row, kind), index[run.id]))
    of: dict[int, list[Run]] = {}
    for run in sorted(runs, key=lambda run: index[run.id], reverse=True):
        of.setdefault(run.experiment_id, []).append(run)
    turn, queue = _turn(state, pool), []
    for id in of:
        experiment = state.experiments[id]
        after = experiment.served(at) + (experiment.running_slots + of[id][-1].slots) * turn / experiment.row.weight
        queue.append((after, experiment.row.created_at, id))
    heapq.heapify(queue)
    ordered: list[Run] = []
    while queue:
        after, created_at, id = heapq.heappop(queue)
        ordered.append(of[id].pop())
        if of[id]:
            heapq.heappush(queue, (after + _cost(state.experiments[id], turn), created_at, id))
    return ordered


def seen(state: ClusterState, event: events.QueueSeen) -> Decision:
    """The scheduler's queue was looked at: how large the windows are from now on, and what is out of order."""
    decision = Decision(then=[events.Schedule(event.at)])
    for pool in sorted(event.nodes):
        decision.rows += _looked(state, event, pool)
    left = REORDER_AT_ONCE
    for pool in sorted(state.pending):
        ordered = in_order(state, pool, event.at)
        kept = _kept(state, pool, ordered)
        for run in ordered[kept:][-left:] if left else ():
            left -= 1
            decision.rows.append(replace(run, intent=Intent.KILL, intent_reason="others come first"))
        runs = _as_they_stand([run for run in ordered[:kept] if run.id in event.waiting], event)
        wanted = assign([event.waiting[run.id] for run in runs], left)
        left -= sum(now != event.waiting[run.id].nice for run, now in zip(runs, wanted, strict=True))
        decision.rows += [replace(run, nice=now) for run, now in zip(runs, wanted, strict=True) if now != run.nice]
    return decision


def _as_they_stand(ordered: Sequence[Run], event: events.QueueSeen) -> list[Run]:
    """Runs of one experiment stay in the order that the scheduler has them in: to change it would help nobody."""
    of: dict[int, list[Run]] = {}
    for run in sorted(ordered, key=lambda run: event.waiting[run.id].priority):
        of.setdefault(run.experiment_id, []).append(run)
    return [of[run.experiment_id].pop() for run in ordered]


def _kept(state: ClusterState, pool: str, ordered: Sequence[Run]) -> int:
    """How many of the runs stay in the scheduler's queue: twice the window, and what could start. The rest comes back later."""
    pool_seen = state.pools.get(pool)
    free = Free.of(pool_seen.node_slots, pool_seen.free) if pool_seen is not None else Free(0, [])
    return 2 * window(state, pool) + sum(bool(free.slots) and free.place(run.slots) for run in ordered)


def _looked(state: ClusterState, event: events.QueueSeen, pool: str) -> Sequence[Row]:
    before = state.pools.get(pool) or PoolState(pool, LEAST_WINDOW)
    counts: dict[int, int] = {}
    for free, _ in event.nodes[pool]:
        if free > 0:
            counts[free] = counts.get(free, 0) + 1
    started = event.started.get(pool, 0)
    now = PoolState(
        name=pool,
        window=min(LARGEST_WINDOW, max(LEAST_WINDOW, 2 * started, 2 * before.started)),
        free=[[free, counts[free]] for free in sorted(counts)],
        node_slots=max((total for _, total in event.nodes[pool]), default=0),
        started=started,
        turn=_lasting(state, pool, event.at, before.turn),
        seen_at=event.at,
    )
    known = replace(now, seen_at=before.seen_at) == before and not state.fresh.get(pool)
    return [] if known and before.seen_at else [now]


def _lasting(state: ClusterState, pool: str, at: float, before: float) -> float:
    """Seconds that a run lasts: on average it is half over when it is looked at. Only fair shares need it."""
    if not _shares(state, pool):
        return 0.0
    slots = started = 0
    for id in state.busy.get(pool, ()):
        slots += state.experiments[id].running_slots
        started += state.experiments[id].started
    if not slots:
        return before
    now = max(1.0, 2 * (at - started / 1000 / slots))
    return now if not before or not 0.8 < now / before < 1.25 else before
