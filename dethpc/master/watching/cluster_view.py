"""What the scheduler says of the cluster: pools, nodes, everybody's queue. Each question is asked once for all who have it.

An answer is kept with its age, and who asks says how old it may be. While a slow scheduler is asked again, everybody gets the
answer before; when it gives none, that one is still better than nothing, and ``notice`` says how old it is.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from concurrent.futures import TimeoutError as NotYet
from dataclasses import replace
from typing import Generic, TypeVar

from dethpc.domain.ports import NodeInfo, PoolInfo, QueuedJob, Scheduler
from dethpc.domain.text.measures import duration
from dethpc.errors import SchedulerUnavailable
from dethpc.insight.waiting import PoolView

RETRY = 5.0
"""Seconds for which a question that got no answer is not asked again."""

PLAN = 300.0
"""How old they may be where their shape alone counts, which changes rarely."""

ANSWERS_WITHIN = 2.0
"""Seconds for which a client that could have an older answer waits for a newer one."""

QUEUE = 30.0
"""How old everybody's queue may be."""

Answer = TypeVar("Answer")


class Question(Generic[Answer]):
    """One question to the scheduler, and its last answer. Safe from any thread."""

    def __init__(self, ask: Callable[[], Answer]) -> None:
        self._ask = ask
        self._lock = threading.Lock()  # never held while the scheduler is asked
        self._answer: tuple[float, Answer] | None = None  # when the question was put, and what was answered
        self._failure: tuple[float, SchedulerUnavailable] | None = None
        self._under_way: tuple[float, Future[Answer]] | None = None  # when it was put, and what will be answered

    def latest(self, max_age: float, *, dispensable: bool = False) -> Answer:
        """An answer not older than ``max_age`` seconds; an older one while another client asks, or none comes soon.

        Raises SchedulerUnavailable when there has been no answer yet; where it is ``dispensable``, also when the first one does not
        come soon.
        """
        since = time.monotonic() - max_age
        with self._lock:
            answer = self._answer
            if answer is not None and (answer[0] >= since or self._under_way is not None or self._failed(since)):
                return answer[1]
        if answer is None and not dispensable:
            return self.current(since)
        try:
            return self._in_background(since).result(ANSWERS_WITHIN)
        except (SchedulerUnavailable, NotYet) as error:
            if answer is None:
                raise SchedulerUnavailable(str(error) or "the scheduler has not answered yet") from None
            return answer[1]

    def silence(self) -> tuple[str, float] | None:
        """Why there is no newer answer than one of so many seconds ago; None while there is nothing to say."""
        with self._lock:
            if self._answer is None:
                return None
            under_way, failure, now = self._under_way, self._failure, time.monotonic()
            if failure is not None:
                return str(failure[1]), now - self._answer[0]
            if under_way is not None and now - under_way[0] >= ANSWERS_WITHIN:
                return f"asked {now - under_way[0]:.0f} s ago", now - self._answer[0]
            return None

    def _in_background(self, since: float) -> Future[Answer]:
        """The answer that is under way, asked for in a thread of its own where nobody has yet."""
        with self._lock:
            if self._failure is not None and self._failed(since):
                raise self._failure[1]
            if self._under_way is not None:
                return self._under_way[1]
            at, future = time.monotonic(), Future[Answer]()
            self._under_way = (at, future)
        threading.Thread(target=self._put, args=(future, at), name="scheduler-asked", daemon=True).start()
        return future

    def current(self, since: float) -> Answer:
        """The answer to a question put at ``since`` (as time.monotonic has it) or later, waiting for it where needed.

        Raises SchedulerUnavailable.
        """
        while True:
            with self._lock:
                if self._answer is not None and self._answer[0] >= since:
                    return self._answer[1]
                if self._failure is not None and self._failed(since):
                    raise self._failure[1]
                asked_before, mine = self._under_way, Future[Answer]()
                if asked_before is None:
                    at = time.monotonic()
                    self._under_way = (at, mine)
            if asked_before is None:
                self._put(mine, at)
                return mine.result()
            if asked_before[0] >= since:
                return asked_before[1].result()
            wait([asked_before[1]])  # it may be answered with what was so before

    def _failed(self, since: float) -> bool:
        return self._failure is not None and self._failure[0] >= max(since, time.monotonic() - RETRY)

    def _put(self, future: Future[Answer], at: float) -> None:
        try:
            answer = self._ask()
        except BaseException as error:
            with self._lock:
                self._under_way = None
                if isinstance(error, SchedulerUnavailable):
                    self._failure = (time.monotonic(), error)
            future.set_exception(error)
        else:
            with self._lock:
                self._under_way, self._failure, self._answer = None, None, (at, answer)
            future.set_result(answer)


class ClusterView:
    """Every method may be called from any thread, and raises SchedulerUnavailable when there is nothing to tell.

    ``page``: how old, in seconds, pools and nodes may be for a person: a page that is reloaded costs the scheduler nothing.
    """

    def __init__(self, scheduler: Scheduler, page: float = 10.0) -> None:
        self._scheduler, self._page = scheduler, page
        self._pools = Question(scheduler.pools)
        self._nodes = Question(scheduler.nodes)
        self._queues: dict[str, Question[list[QueuedJob]]] = {}
        self._lock = threading.Lock()

    def pools(self, max_age: float | None = None) -> list[PoolInfo]:
        return self._pools.latest(self._page if max_age is None else max_age)

    def nodes(self, max_age: float | None = None) -> list[NodeInfo]:
        return self._nodes.latest(self._page if max_age is None else max_age)

    def current_nodes(self, since: float) -> list[NodeInfo]:
        """As they were at ``since`` (of time.monotonic) or later."""
        return self._nodes.current(since)

    def nodes_down(self, since: float) -> frozenset[str]:
        """Names of the nodes that took no work at ``since`` (of time.monotonic) or later."""
        return frozenset(node.name for node in self.current_nodes(since) if not node.state.usable)

    def queue(self, partition: str, max_age: float = QUEUE) -> list[QueuedJob]:
        """Everybody's jobs that wait for the partition or run in it."""
        with self._lock:
            question = self._queues.setdefault(partition, Question(lambda: self._scheduler.queue(partition)))
        return question.latest(max_age, dispensable=True)

    @property
    def notice(self) -> str:
        """What to say beside pools and nodes while the scheduler tells nothing newer; "" while it does. Nobody is asked."""
        for question in (self._nodes, self._pools):
            if (silence := question.silence()) is not None:
                name = "Slurm" if self._scheduler.kind == "slurm" else "the scheduler"
                why, age = silence
                return f"{name} gives no answer ({why}): pools and nodes are shown as of {duration(age)} ago"
        return ""

    def pool(self, name: str, max_age: float = PLAN) -> PoolView:
        """The pool and its nodes, without its queue."""
        info = next((pool for pool in self.pools(max_age) if pool.name == name), None)
        return PoolView(info, [node for node in self.nodes(max_age) if name in node.pools])

    def pool_and_queue(self, name: str) -> PoolView:
        """The pool with everybody's jobs in it, as far as the scheduler answers."""
        try:
            view = self.pool(name, self._page)
        except SchedulerUnavailable:
            return PoolView()
        if view.pool is not None:
            with contextlib.suppress(SchedulerUnavailable):
                return replace(view, queue=self.queue(view.pool.partition))
        return view

    def element(self, number: str) -> str | None:
        """As the scheduler's; None also where that does not answer."""
        try:
            return self._scheduler.element(number)
        except SchedulerUnavailable:
            return None

    def running_jobs(self) -> dict[str, dict[str, QueuedJob]]:
        """Everybody's running jobs by node and id."""
        jobs: dict[str, dict[str, QueuedJob]] = {}
        for partition in {pool.partition for pool in self.pools() if pool.nodes}:
            try:
                queue = self.queue(partition)
            except SchedulerUnavailable:
                continue
            for job in queue:
                for place in job.places:
                    jobs.setdefault(place, {})[job.job_id] = job
        return jobs
