"""A simulated master that minds its manners: it submits at a rate, and polls the scheduler's queue from time to time."""

from __future__ import annotations

from collections.abc import Callable

from dethpc.engine import events
from dethpc.engine.queueing.nice import PendingJob
from dethpc.engine.queueing.pools import Free
from dethpc.simulator.clock import Clock
from dethpc.simulator.cluster import PATIENCE
from dethpc.simulator.shell import Died, Shell
from dethpc.simulator.slots import Slots
from dethpc.simulator.traffic import Manners, Traffic


class Polls:
    def __init__(self, manners: Manners, traffic: Traffic, clock: Clock, slots: Slots, shell: Shell) -> None:
        self._manners, self._traffic, self._clock = manners, traffic, clock
        self._slots, self._shell = slots, shell
        self._next_submission = 0.0
        self._started: dict[str, int] = {}  # by pool, since the last poll
        clock.at(manners.look_every, self._poll)

    def submit(self, arrive: Callable[[], None]) -> None:
        """Call ``arrive`` once a token bucket like that of the real master has a token."""
        rate, burst = self._manners.submit_per_second, self._manners.submit_burst
        self._next_submission = max(self._next_submission + 1 / rate, self._clock.now - burst / rate)
        when = max(self._clock.now, self._next_submission)
        self._traffic.add_request(when)
        self._clock.at(when, arrive)

    def started(self, pool: str) -> None:
        self._started[pool] = self._started.get(pool, 0) + 1

    def _poll(self) -> None:
        """The master looks at the scheduler's queue, and brings its own jobs there into its order."""
        self._clock.at(self._clock.now + self._manners.look_every, self._poll)
        if self._shell.away or not any(True for _ in self._shell.state.active()):
            return
        state, cluster = self._shell.state, self._slots.cluster
        free = [0 if n in cluster.down else slots for n, slots in enumerate(cluster.free)]
        idle = self._idle(Free.of(cluster.slots_per_node, [(slots, 1) for slots in free if slots]))
        pools = {*state.places.lists, *state.live.pending}
        shown = {id: cluster.queue[id] for id in state.runs if id in cluster.queue}
        waiting = {id: PendingJob(job.priority, job.nice, job.number) for id, job in shown.items()}
        nodes = {pool: [(slots, cluster.slots_per_node) for slots in free] for pool in pools}
        started, self._started = self._started, {}
        try:
            self._shell.do(events.QueueSeen(nodes, started, waiting, self._clock.now))
        except Died:
            return
        runs = self._shell.state.runs
        targets = {id: runs[id].nice for id in waiting if id in runs}
        changed = {id: nice for id, nice in targets.items() if nice != waiting[id].nice}
        for id, nice in changed.items():
            cluster.nice(id, nice)
        self._traffic.looked(self._clock.now, len(changed), idle and not started)
        self._slots.start()

    def _idle(self, free: Free) -> bool:
        """Whether a trial that was not submitted would find slots that are free and that no submitted one will take."""
        now, state = self._clock.now, self._shell.state
        if any(now - job.since > PATIENCE for job in self._slots.cluster.queue.values()):
            return False  # the scheduler keeps slots for somebody
        for run in (run for runs in state.live.pending.values() for run in runs.values()):
            if not free.place(run.slots) and now - run.created_at > PATIENCE:
                return False
        return any(free.place(slots) for sizes in state.places.lists.values() for slots in sizes)
