"""What may go next: the queue in front of the scheduler.

A pool's queue has an order (priority and position, or age, or shares by weight). The first of it, as many runs as the pool's
window says, wait in the scheduler's own queue, and beyond that what could start at once on slots that are free. So a large trial
that must wait does not keep the slots from a smaller one behind it, until it has waited for ``PATIENCE``.

Those that wait in the scheduler's queue are kept in order by stepping back (``nice``). The less room priorities leave for that, the
fewer wait there; and who stands in the way where stepping back moves nothing is taken back, and comes again behind. dethpc never
holds a job there, so that a hold is always a person's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from dethpc.domain.facts import PoolState, Row, Run
from dethpc.domain.states import Intent
from dethpc.engine import events
from dethpc.engine.decision import Decision
from dethpc.engine.queueing.dispatch_order import aside, dispatch_order, in_order, shares, stands_aside
from dethpc.engine.queueing.jobs import RunPlace
from dethpc.engine.queueing.nice import assign, in_the_way
from dethpc.engine.queueing.pools import Free
from dethpc.engine.queueing.queue_index import QueueKey
from dethpc.engine.state import ClusterState

LEAST_WINDOW, LARGEST_WINDOW = 16, 1000
"""How many runs may wait in the scheduler's own queue, per pool that has no window of its own."""

FEWEST = 4
"""How many may where nice orders nothing, unless more start between two looks: slots that come free must find somebody."""

PATIENCE = 3600.0
"""Seconds that a run which finds no room lets others overtake it."""

REORDER_AT_ONCE = 16
"""Jobs whose place in the scheduler's queue is changed, or taken away, in one cycle: each costs the scheduler a request."""


def schedule(state: ClusterState, event: events.Schedule) -> Decision:
    """Runs that should be submitted now. An experiment's ``max_slots`` is never exceeded."""
    rows: list[Row] = []
    for pool in list(state.places.lists):
        rows += _submitted(state, pool, event.at)
    return Decision(rows)


def _submitted(state: ClusterState, pool: str, at: float) -> Iterator[Row]:
    capacity, steps_back = _Capacity(state, pool, at), _steps_back(state, pool)
    full: set[int] = set()
    passed_over = aside(state, pool)
    ahead = 0
    for dispatch in dispatch_order(state, pool, at, full, passed_over):
        if capacity.full(ahead):
            return
        if dispatch.waiting:
            here = min(dispatch.waiting, passed_over.get(dispatch.job.id, 0))
            if here:
                passed_over[dispatch.job.id] -= here
            ahead += dispatch.waiting - here
        else:
            job = dispatch.job
            if not capacity.take(job.slots, ahead):
                full.add(job.slots)
                continue
            if dispatch.member == job.waiting[0] and not job.live and dispatch.had > job.entry.served:
                yield replace(job.entry, served=dispatch.had)
            own = job.place.key if job.place is not None else None
            nice = max((nice for other, nice in steps_back if own is None or other <= own), default=0)
            yield from job.submission(dispatch.member, RunPlace(pool, at, nice))
            ahead += 1


class _Capacity:
    """How much more of a pool's queue may go to the scheduler: the first of it, and what could start at once."""

    def __init__(self, state: ClusterState, pool: str, at: float) -> None:
        seen = state.pools.get(pool)
        pending = state.live.pending.get(pool, {}).values()
        self._window = window(state, pool) + sum(held(run) for run in pending)
        self._free = Free.of(seen.node_slots, seen.free) if seen is not None else Free(0, [])
        self._overtaking = True
        if self._free.slots:
            for run in state.live.fresh.get(pool, {}).values():
                self._free.place(run.slots)
            for run in pending:
                if held(run) or stands_aside(state, run):
                    continue
                if not self._free.place(run.slots) and at - run.created_at > PATIENCE:
                    self._overtaking = False

    def full(self, ahead: int) -> bool:
        """Whether nothing more may go that has that many runs ahead of it among those that wait in the scheduler's queue."""
        return ahead >= self._window and not (self._overtaking and self._free.slots)

    def take(self, slots: int, ahead: int) -> bool:
        """Once refused, a size stays refused for all that come later."""
        starts = bool(self._free.slots) and self._free.place(slots)
        return ahead < self._window or (starts and self._overtaking)


def window(state: ClusterState, pool: str) -> int:
    fixed, seen = state.rules_of(pool).window, state.pools.get(pool)
    return fixed if fixed is not None else seen.window if seen is not None else LEAST_WINDOW


def held(run: Run) -> bool:
    """Whether a person keeps the run's job from starting. It stands aside: nobody waits behind it, and nobody takes it back."""
    return run.reason.startswith("JobHeld")


def served(state: ClusterState, event: events.Served) -> Decision:
    job = state.jobs.get(event.queue_id)
    if job is None:
        return Decision()  # a task that has ended, and asks for nothing more
    entry = job.entry
    return Decision([replace(entry, served=entry.served + event.slot_seconds / entry.weight)])


def _steps_back(state: ClusterState, pool: str) -> list[tuple[QueueKey, int]]:
    """Runs of the pool that step back in the scheduler's queue: what joins it behind them steps back as far."""
    kind, runs = state.rules_of(pool).kind, state.live.pending.get(pool, {}).values()
    return [(state.job_of(run).key(kind), run.nice) for run in runs if run.nice]


# --- inside the scheduler's own queue


def seen(state: ClusterState, event: events.QueueSeen) -> Decision:
    """The scheduler's queue was looked at: how large the windows are from now on, and what is out of order."""
    decision = Decision(then=[events.Schedule(event.at)])
    for pool in sorted(event.nodes):
        decision.rows += _looked(state, event, pool)
    budget = REORDER_AT_ONCE
    for pool in sorted(state.live.pending):
        ordered = [run for run in in_order(state, pool, event.at) if not held(run) and not stands_aside(state, run)]
        size = _queue_limit(state, pool, ordered)
        runs = _as_they_stand(state, [run for run in ordered[:size] if run.id in event.waiting], event)
        back = ordered[size:]
        if not shares(state, pool):  # there who starts too soon has less later
            back = [runs[n] for n in in_the_way([event.waiting[run.id] for run in runs])] + back
        for run in back[-budget:] if budget else ():
            budget -= 1
            decision.rows.append(replace(run, intent=Intent.KILL, intent_reason="others come first"))
        gone = {run.id for run in back}
        runs = [run for run in runs if run.id not in gone]
        targets = assign([event.waiting[run.id] for run in runs], budget)
        budget -= sum(now != event.waiting[run.id].nice for run, now in zip(runs, targets, strict=True))
        decision.rows += [replace(run, nice=now) for run, now in zip(runs, targets, strict=True) if now != run.nice]
    return decision


def _as_they_stand(state: ClusterState, ordered: Sequence[Run], event: events.QueueSeen) -> list[Run]:
    """Runs of one job stay in the order that the scheduler has them in: to change it would help nobody."""
    of: dict[str, list[Run]] = {}
    for run in sorted(ordered, key=lambda run: event.waiting[run.id].place):
        of.setdefault(state.job_of(run).id, []).append(run)
    return [of[state.job_of(run).id].pop() for run in ordered]


def _queue_limit(state: ClusterState, pool: str, ordered: Sequence[Run]) -> int:
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
    waiting = (event.waiting[id] for id in state.live.pending.get(pool, ()) if id in event.waiting)
    # How many jobs nice can bring into an order, for certain.
    steps = min((job.base for job in waiting), default=before.window)
    least = max(FEWEST, min(LEAST_WINDOW, steps))
    now = PoolState(
        name=pool,
        window=min(LARGEST_WINDOW, max(least, 2 * started, 2 * before.started)),
        free=[[free, counts[free]] for free in sorted(counts)],
        node_slots=max((total for _, total in event.nodes[pool]), default=0),
        started=started,
        turn=_lasting(state, pool, event.at, before.turn),
        seen_at=event.at,
    )
    unchanged = replace(now, seen_at=before.seen_at) == before and not state.live.fresh.get(pool)
    return [] if unchanged and before.seen_at else [now]


def _lasting(state: ClusterState, pool: str, at: float, before: float) -> float:
    """Seconds that a run lasts: on average it is half over when it is looked at. Only fair shares need it."""
    if not shares(state, pool):
        return 0.0
    slots = started = 0
    for id in state.live.busy.get(pool, ()):
        slots += state.jobs[id].running_slots
        started += state.jobs[id].started
    if not slots:
        return before
    now = max(1.0, 2 * (at - started / 1000 / slots))
    return now if not before or not 0.8 < now / before < 1.25 else before
