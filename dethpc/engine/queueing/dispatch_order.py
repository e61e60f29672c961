"""The order in which a pool dispatches the runs of its jobs. What is submitted and what is shown both come from here."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterator
from typing import NamedTuple

from dethpc.domain.facts import Run
from dethpc.domain.states import Intent, RunState
from dethpc.engine.queueing.jobs import Job
from dethpc.engine.queueing.pools import TURN
from dethpc.engine.queueing.queue_index import QueueKey
from dethpc.engine.state import ClusterState


class Dispatch(NamedTuple):
    """``waiting`` runs of the job that wait in the scheduler's own queue already; 0: a new run, which ``member`` of it may have.

    ``had``: what the job is taken to have had already where shares count, slot-seconds over weight.
    """

    job: Job
    waiting: int
    member: int = 0
    had: float = 0.0


def dispatch_order(
    state: ClusterState, pool: str, at: float, full: Collection[int] = (), over: Collection[str] = ()
) -> Iterator[Dispatch]:
    """The runs of the pool that wait in the scheduler's queue, and those that could join them, as they should start.

    No new runs come for jobs whose runs have a number of slots in ``full``, and for jobs whose id is in ``over``; the caller may
    add to both on the way. The state must stay as it is meanwhile.
    """
    return (_shared if shares(state, pool) else _ordered)(state, pool, at, full, over)


def aside(state: ClusterState, pool: str) -> dict[str, int]:
    """Jobs of which the scheduler does not take a run at present, by id, and how many of their runs wait for that.

    They are in nobody's way: they count for no window, and get no further runs until they are taken.
    """
    held = state.live.deferred.get(pool)
    if not held:
        return {}
    counts = dict.fromkeys(held, 0)
    for run in state.live.pending.get(pool, {}).values():
        if (id := state.tasks[run.task_id].queue_id) in counts:
            counts[id] += run.state is RunState.SUBMITTING
    return counts


def stands_aside(state: ClusterState, run: Run) -> bool:
    """Whether the run is one of those that ``aside`` counts."""
    held = state.live.deferred.get(run.pool, {})
    return bool(held) and run.state is RunState.SUBMITTING and state.tasks[run.task_id].queue_id in held


def shares(state: ClusterState, pool: str) -> bool:
    return state.rules_of(pool).kind == "fair_share"


def order(state: ClusterState, pool: str, at: float) -> list[Job]:
    """The jobs of the pool, first the one whose next run is dispatched first. One that wants no run now is where it would be."""
    jobs = [job for job in state.jobs.values() if job.queued and job.entry.pool == pool]
    if shares(state, pool):
        share = _Share(state, pool, at)
        return sorted(jobs, key=share.first)
    kind = state.rules_of(pool).kind
    return sorted(jobs, key=lambda job: job.key(kind))


def ahead_of(state: ClusterState, job: Job, at: float) -> int:
    """How many runs of other jobs are submitted before the next one of ``job``, which wants one."""
    ahead = 0
    for dispatch in dispatch_order(state, job.entry.pool, at, over=state.live.deferred.get(job.entry.pool, ())):
        if not dispatch.waiting:
            if dispatch.job is job:
                break
            ahead += 1
    return ahead


def in_order(state: ClusterState, pool: str, at: float) -> list[Run]:
    """The pool's runs that wait in the scheduler's queue, as they should start: those of a job in the order of its trials."""
    runs = state.live.pending.get(pool, {}).values()
    jobs, tasks = state.jobs, state.tasks
    if not shares(state, pool):  # then runs are dispatched in the order of the jobs' keys
        kind = state.rules_of(pool).kind
        keyed = [
            (jobs[tasks[run.task_id].queue_id].key(kind), state.member_of(run), run)
            for run in runs
            if run.intent is Intent.GO
        ]
        keyed.sort()  # no two of them have the same member of the same job
        return [run for _, _, run in keyed]
    of: dict[str, list[tuple[bool, int, Run]]] = {}
    for run in runs:  # what is being withdrawn comes last of its job
        of.setdefault(tasks[run.task_id].queue_id, []).append((run.intent is not Intent.GO, state.member_of(run), run))
    for own in of.values():
        own.sort(reverse=True)
    ordered: list[tuple[bool, int, Run]] = []
    for dispatch in dispatch_order(state, pool, at, full=state.places.of(pool)):
        own = of[dispatch.job.id]
        if dispatch.waiting == 1:
            ordered.append(own.pop())
        else:
            ordered += [own.pop() for _ in range(dispatch.waiting)]
    return [run for withdrawn, _, run in ordered if not withdrawn]


def _ordered(
    state: ClusterState, pool: str, at: float, full: Collection[int], over: Collection[str]
) -> Iterator[Dispatch]:
    """From the heads of the lists, one for each size of run, always the one that comes first."""
    kind, lists = state.rules_of(pool).kind, state.places.of(pool)
    there = [(state.jobs[id].key(kind), count) for id, count in state.live.waiting.get(pool, {}).items()]
    there.sort(reverse=True)
    heads = [(keys[0], slots, 0) for slots, keys in lists.items() if slots not in full]
    heapq.heapify(heads)
    while heads:
        head, slots, n = heapq.heappop(heads)
        if slots in full:
            continue
        while there and there[-1][0] <= head:
            mine, count = there.pop()
            yield Dispatch(state.jobs[mine.queue_id], count)
        job = state.jobs[head.queue_id]
        for member in job.waiting[: job.allowance]:
            if slots in full or job.id in over:
                break
            yield Dispatch(job, 0, member)
        if n + 1 < len(lists[slots]):
            heapq.heappush(heads, (lists[slots][n + 1], slots, n + 1))
    for mine, count in reversed(there):
        yield Dispatch(state.jobs[mine.queue_id], count)


def _shared(
    state: ClusterState, pool: str, at: float, full: Collection[int], over: Collection[str]
) -> Iterator[Dispatch]:
    """Always the job that will have had least for its weight when the run is over.

    Of the jobs that have nothing in the pool yet, which may be many, only those are looked at that may be next.
    """
    share, lists = _Share(state, pool, at), state.places.of(pool)
    there, jobs = state.live.waiting.get(pool, {}), state.jobs
    begun = [share.first(jobs[id]) for id in share.busy]
    newcomers = [(share.newcomer(keys[0], slots), slots, 0) for slots, keys in lists.items()]
    heapq.heapify(begun)
    heapq.heapify(newcomers)
    while begun or newcomers:
        if newcomers and (not begun or newcomers[0][0] <= begun[0][0]):
            _, slots, n = heapq.heappop(newcomers)
            if slots in full:
                continue
            keys = lists[slots]
            if n + 1 < len(keys):
                heapq.heappush(newcomers, (share.newcomer(keys[n + 1], slots), slots, n + 1))
            if keys[n].queue_id not in share.busy:
                heapq.heappush(begun, share.first(jobs[keys[n].queue_id]))
            continue
        after, created_at, number, id, n, had = heapq.heappop(begun)
        job = jobs[id]
        more = n - there.get(id, 0)
        if more >= 0:
            if job.place is None or job.entry.pool != pool or more >= job.allowance or job.slots in full or id in over:
                continue
            after, n = after + share.cost(job), n + 1
            heapq.heappush(begun, (after, created_at, number, id, n, had))
            yield Dispatch(job, 0, job.waiting[more], had)
            continue
        count, cost = 0, share.cost(job)
        while True:  # as many in a row as are due before anybody else's
            count, after, n = count + 1, after + cost, n + 1
            claim = (after, created_at, number, id, n, had)
            if count == -more or (begun and begun[0] < claim) or (newcomers and newcomers[0][0] <= after):
                break
        heapq.heappush(begun, claim)
        yield Dispatch(job, count)


_Claim = tuple[float, float, int, str, int, float]
"""``(after, created_at, number, queue_id, n, had)``: ``after`` is what a job will have had when its ``n``-th run that does not
run yet is over, ``had`` what it has had already, both in slot-seconds over weight. A plain tuple: thousands are compared."""


class _Share:
    """What the jobs of a pool that shares have had, and what a run adds to it."""

    def __init__(self, state: ClusterState, pool: str, at: float) -> None:
        seen = state.pools.get(pool)
        self._turn = seen.turn if seen is not None and seen.turn else TURN
        self.busy = {id: state.jobs[id].served(at) for id in state.live.busy.get(pool, ())}
        self._floor = min(self.busy.values(), default=0.0)  # where a newcomer begins

    def cost(self, job: Job) -> float:
        """What a run counts for its job's share."""
        return job.slots * self._turn / job.entry.weight

    def first(self, job: Job) -> _Claim:
        """A job that had no use for its share in the past has no claim on it now."""
        entry, slots = job.entry, job.slots
        had = self.busy.get(entry.queue_id)
        if had is None:
            had = max(entry.served, self._floor)
        else:
            slots += job.running_slots
        after = had + slots * self._turn / entry.weight
        return (after, entry.created_at, entry.queue_number, entry.queue_id, 0, had)

    def newcomer(self, head: QueueKey, slots: int) -> float:
        """Before which no job from there on in the list is dispatched."""
        return self._floor + head.position * slots * self._turn
