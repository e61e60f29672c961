"""Whose turn it is: the order in which a pool serves its jobs. What is submitted and what is shown both come from here."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Collection, Iterator
from typing import NamedTuple

from dethpc.domain.facts import Run
from dethpc.domain.states import Intent
from dethpc.engine.jobs import Job
from dethpc.engine.pools import TURN
from dethpc.engine.queue_index import QueueKey
from dethpc.engine.state import ClusterState


class Turn(NamedTuple):
    """``waiting`` runs of the job that wait in the scheduler's own queue already; 0: a new run, which ``member`` of it may have.

    ``had``: what the job is taken to have had already where shares count, slot-seconds over weight.
    """

    job: Job
    waiting: int
    member: int = 0
    had: float = 0.0


def turns(
    state: ClusterState, pool: str, at: float, full: Collection[int] = (), over: Collection[str] = ()
) -> Iterator[Turn]:
    """The runs of the pool that wait in the scheduler's queue, and those that could join them, as they should start.

    No new runs come for jobs whose runs have a number of slots in ``full``, and for jobs whose id is in ``over``; the caller may
    add to both on the way. The state must stay as it is meanwhile.
    """
    return (_shared if shares(state, pool) else _ordered)(state, pool, at, full, over)


def shares(state: ClusterState, pool: str) -> bool:
    return state.rules_of(pool).kind == "fair_share"


def order(state: ClusterState, pool: str, at: float) -> list[Job]:
    """The jobs of the pool, the one whose next turn comes first at the head. One that wants no run now is where it would be."""
    jobs = [job for job in state.jobs.values() if job.queued and job.entry.pool == pool]
    if shares(state, pool):
        share = _Share(state, pool, at)
        return sorted(jobs, key=share.first)
    kind = state.rules_of(pool).kind
    return sorted(jobs, key=lambda job: job.key(kind))


def ahead_of(state: ClusterState, job: Job, at: float) -> int:
    """How many runs of other jobs are submitted before the next one of ``job``, which wants one."""
    ahead = 0
    for turn in turns(state, job.entry.pool, at):
        if not turn.waiting:
            if turn.job is job:
                break
            ahead += 1
    return ahead


def in_order(state: ClusterState, pool: str, at: float) -> list[Run]:
    """The pool's runs that wait in the scheduler's queue, as they should start: those of a job in the order of its trials."""
    runs: dict[str, list[Run]] = {}
    for run in state.pending.get(pool, {}).values():
        runs.setdefault(state.tasks[run.task_id].queue_id, []).append(run)
    for own in runs.values():  # what is being withdrawn has its job's last turns
        own.sort(key=lambda run: (run.intent is not Intent.GO, state.member_of(run)), reverse=True)
    every_size = state.places.of(pool)
    ordered = []
    for turn in turns(state, pool, at, full=every_size):
        own = runs[turn.job.id]
        ordered += [own.pop() for _ in range(turn.waiting)]
    return [run for run in ordered if run.intent is Intent.GO]


def _waiting(state: ClusterState, pool: str) -> Counter[str]:
    """How many runs of each job wait in the scheduler's queue."""
    tasks = state.tasks
    return Counter([tasks[run.task_id].queue_id for run in state.pending.get(pool, {}).values()])


def _ordered(state: ClusterState, pool: str, at: float, full: Collection[int], over: Collection[str]) -> Iterator[Turn]:
    """From the heads of the lists, one for each size of run, always the one that comes first."""
    kind, lists = state.rules_of(pool).kind, state.places.of(pool)
    there = [(state.jobs[id].key(kind), count) for id, count in _waiting(state, pool).items()]
    there.sort(reverse=True)
    heads = [(keys[0], slots, 0) for slots, keys in lists.items() if slots not in full]
    heapq.heapify(heads)
    while heads:
        head, slots, n = heapq.heappop(heads)
        if slots in full:
            continue
        while there and there[-1][0] <= head:
            mine, count = there.pop()
            yield Turn(state.jobs[mine.queue_id], count)
        job = state.jobs[head.queue_id]
        for member in job.waiting[: job.room]:
            if slots in full or job.id in over:
                break
            yield Turn(job, 0, member)
        if n + 1 < len(lists[slots]):
            heapq.heappush(heads, (lists[slots][n + 1], slots, n + 1))
    for mine, count in reversed(there):
        yield Turn(state.jobs[mine.queue_id], count)


def _shared(state: ClusterState, pool: str, at: float, full: Collection[int], over: Collection[str]) -> Iterator[Turn]:
    """Always the job that will have had least for its weight when the run is over.

    Of the jobs that have nothing in the pool yet, which may be many, only those are looked at whose turn may have come.
    """
    share, lists = _Share(state, pool, at), state.places.of(pool)
    there = _waiting(state, pool)
    begun = [share.first(state.jobs[id]) for id in share.busy]
    newcomers = [(share.newcomer(keys[0], slots), slots, 0) for slots, keys in lists.items()]
    heapq.heapify(begun)
    heapq.heapify(newcomers)
    while begun or newcomers:
        if newcomers and (not begun or newcomers[0][0] <= begun[0].after):
            _, slots, n = heapq.heappop(newcomers)
            if slots in full:
                continue
            keys = lists[slots]
            if n + 1 < len(keys):
                heapq.heappush(newcomers, (share.newcomer(keys[n + 1], slots), slots, n + 1))
            if keys[n].queue_id not in share.busy:
                heapq.heappush(begun, share.first(state.jobs[keys[n].queue_id]))
            continue
        claim = heapq.heappop(begun)
        job = state.jobs[claim.queue_id]
        more = claim.n - there[job.id]
        if more < 0:
            yield Turn(job, 1)
        elif job.place is None or job.entry.pool != pool or more >= job.room or job.slots in full or job.id in over:
            continue
        else:
            yield Turn(job, 0, job.waiting[more], claim.had)
        heapq.heappush(begun, _next(claim, share.cost(job)))


class _Claim(NamedTuple):
    """What a job will have had when its ``n``-th run that does not run yet is over, slot-seconds over weight."""

    after: float
    created_at: float
    number: int
    queue_id: str
    n: int
    had: float


def _next(claim: _Claim, cost: float) -> _Claim:
    after, created_at, number, queue_id, n, had = claim
    return _Claim(after + cost, created_at, number, queue_id, n + 1, had)


class _Share:
    """What the jobs of a pool that shares have had, and what a run adds to it."""

    def __init__(self, state: ClusterState, pool: str, at: float) -> None:
        seen = state.pools.get(pool)
        self._turn = seen.turn if seen is not None and seen.turn else TURN
        self.busy = {id: state.jobs[id].served(at) for id in state.busy.get(pool, ())}
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
        return _Claim(after, entry.created_at, entry.queue_number, entry.queue_id, 0, had)

    def newcomer(self, head: QueueKey, slots: int) -> float:
        """Before which no job from there on in the list has its turn."""
        return self._floor + head.position * slots * self._turn
