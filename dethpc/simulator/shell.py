"""The master's part in a simulation: commit what the engine decides, then bring the world to what the rows want.

As in the real master everything that it does may be done twice. It learns of a run by reading what the run has left, from where
it had got to; so a doorbell that nobody heard and a death at any commit lose nothing.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from dethpc.domain.facts import Row, Run, Trial
from dethpc.domain.ports import Store
from dethpc.domain.states import AttemptState, Intent, RunState
from dethpc.engine import ClusterState, events, step
from dethpc.engine.fold import fold
from dethpc.engine.queueing.pools import Rules
from dethpc.engine.runs import next_deadline, preemption_timeout
from dethpc.engine.state import BuildSearcher
from dethpc.simulator.jobs import Job


class World(Protocol):
    """What the shell acts on."""

    @property
    def now(self) -> float: ...

    @property
    def jobs(self) -> Mapping[str, Job]: ...

    def submit(self, run: Run, trial: Trial) -> None: ...

    def stop(self, job: Job, reason: str) -> None: ...

    def cancel(self, job: Job) -> None: ...

    def forget(self, job: Job) -> None: ...

    def tick_at(self, at: float) -> None: ...

    def master_died(self) -> None: ...


class Died(Exception):
    """The simulated master is gone; what it had not committed with it."""


class Shell:
    """``listeners`` are called with the rows of each commit. ``crash`` is the chance to die just before or after one."""

    def __init__(
        self,
        world: World,
        build_searcher: BuildSearcher,
        store: Store | None,
        crash: float,
        rng: random.Random,
        rules: Mapping[str, Rules] | None = None,
    ) -> None:
        self._rules = rules or {}
        self.state = ClusterState(build_searcher, self._rules)
        self.listeners: list[Callable[[Sequence[Row]], None]] = []
        self.away = False
        self.deaths = 0
        self._world, self._build_searcher, self._store = world, build_searcher, store
        self._crash, self._rng = crash, rng
        self._todo: deque[str] = deque()
        self._busy = False

    def do(self, event: events.Event) -> Sequence[Row]:
        """A user's wish, or the time. A master that dies over it has not taken it: ask again. Raises Died, Refused."""
        if self.away:
            raise Died
        try:
            rows = self._take(event)
        except Died:
            self._die()
            raise
        self._go_round()
        return rows

    def ring(self, run_id: str) -> None:
        """Something of the run has changed."""
        if not self.away:
            self._todo.append(run_id)
            self._go_round()

    def come_back(self) -> None:
        """A new master: its memory is what the store has."""
        assert self._store is not None
        self.away = False
        self.state = fold(self._build_searcher, self._store.load(), self._rules)
        self._todo = deque(self.state.runs)
        deadline = next_deadline(self.state)
        if deadline is not None:
            self._world.tick_at(deadline)
        self._go_round()

    def _go_round(self) -> None:
        if self._busy:
            return
        self._busy = True
        try:
            while self._todo:
                self._look(self._todo.popleft())
        except Died:
            self._die()
        finally:
            self._busy = False

    def _die(self) -> None:
        self.deaths += 1
        self.away = True
        self._todo.clear()
        self._world.master_died()

    def _take(self, event: events.Event) -> Sequence[Row]:
        rows = step(self.state, event)
        if self._crash and self._rng.random() < self._crash / 2:
            raise Died
        if self._store is not None:
            self._store.commit(rows)
        for listener in self.listeners:
            listener(rows)
        if self._crash and self._rng.random() < self._crash / 2:
            raise Died
        for row in rows:
            if isinstance(row, Run) and (row.state is RunState.SUBMITTING or row.intent is not Intent.GO):
                self._todo.append(row.id)
                if row.stopping_since is not None and row.id in self.state.runs:
                    self._world.tick_at(row.stopping_since + preemption_timeout(self.state, row))
        return rows

    def _look(self, run_id: str) -> None:
        """Take in what the run has left since last time, and see that it is what its row wants."""
        run, job = self.state.runs.get(run_id), self._world.jobs.get(run_id)
        if run is None:
            if job is not None:
                self._world.forget(job)  # its end was committed, and then the master died
            return
        if job is None:
            if run.intent is not Intent.GO:
                self._take(events.AttemptEnded(run_id, -1, None, None, self._world.now))
                return
            trial = self.state.trial_of(run)
            assert trial is not None
            self._world.submit(run, trial)
            job = self._world.jobs[run_id]
        if run.state is RunState.SUBMITTING:
            self._take(events.Submitted(run_id, run_id, self._world.now))
        self._read(job)
        if run_id not in self.state.runs:
            self._world.forget(job)
            return
        run = self.state.runs[run_id]
        if run.intent is Intent.STOP:
            self._world.stop(job, run.intent_reason)
        elif run.intent is Intent.KILL:
            self._world.cancel(job)

    def _read(self, job: Job) -> None:
        run_id, now = job.run.id, self._world.now
        for attempt in job.attempts[max(0, self.state.runs[run_id].attempt) :]:
            if attempt.k > self.state.runs[run_id].attempt:
                resumed = None if attempt.resumed is None else attempt.resumed.uuid
                self._take(
                    events.AttemptStarted(
                        run_id, attempt.k, attempt.nodes, resumed, attempt.resumed_steps, attempt.started_at
                    )
                )
            row = self.state.attempt(run_id, attempt.k)
            assert row is not None
            if row.state is AttemptState.ENDED:
                continue
            if len(attempt.journal) > row.applied_seq:
                self._take(events.Reported(run_id, attempt.k, attempt.journal[row.applied_seq :], now))
            if attempt.over:
                self._take(
                    events.AttemptEnded(run_id, attempt.k, attempt.end, attempt.record, now, requeued=attempt.requeued)
                )
            if run_id not in self.state.runs:
                return
        if not job.state.live:
            k = self.state.runs[run_id].attempt
            self._take(events.AttemptEnded(run_id, k, None, job.record(job.state), now))
