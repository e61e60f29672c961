"""Who waits for slots of the simulated cluster and who holds them, other users among them."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from functools import partial

from dethpc.simulator.clock import Clock
from dethpc.simulator.cluster import Cluster
from dethpc.simulator.site import Site

OTHERS = "other-"
"""What ids of other users' jobs begin with."""


class Slots:
    """``begin(job id, seconds that it waited)`` is called when a job of ours gets its slots, and ``release(job id, seconds that it
    held them)`` when it gives them back."""

    def __init__(
        self,
        site: Site,
        clock: Clock,
        rng: random.Random,
        begin: Callable[[str, float], None],
        release: Callable[[str, float], None],
    ) -> None:
        self.cluster = Cluster(site.nodes, site.slots_per_node, site.weights)
        self._site, self._clock, self._rng = site, clock, rng
        self._begin, self._release = begin, release
        self._held_since: dict[str, float] = {}
        self._queued_since: dict[str, float] = {}
        self._others = 0

    def queue(self, job_id: str, slots: int, nice: int = 0) -> None:
        self.cluster.submit(job_id, slots, self._clock.now, nice)
        self._queued_since[job_id] = self._clock.now
        self.start()

    def start(self) -> None:
        """Let every job start that can."""
        now = self._clock.now
        for job_id in self.cluster.start(now):
            queued = self._queued_since.pop(job_id)
            if job_id.startswith(OTHERS):
                self._clock.at(now + self._rng.expovariate(1 / self._site.load_duration), partial(self.free, job_id))
            else:
                self._held_since[job_id] = now
                self._begin(job_id, now - queued)

    def free(self, job_id: str) -> None:
        """The job is over, or leaves the queue."""
        self.cluster.release(job_id)
        self._queued_since.pop(job_id, None)
        since = self._held_since.pop(job_id, None)
        if since is not None:
            self._release(job_id, self._clock.now - since)
        self.start()

    def fill(self) -> None:
        """Other users hold their share of the slots, and go on submitting."""
        if self._site.load > 0:
            slots = 0.0
            while slots < self._site.load * self._site.nodes * self._site.slots_per_node:
                slots += self._other_job()
            self._next_other_job()

    def _other_job(self) -> int:
        """Another user submits a job; returns its slots."""
        slots: int = 2 ** self._rng.randint(0, int(math.log2(self._site.slots_per_node)))
        self._others += 1
        self.queue(f"{OTHERS}{self._others}", slots)
        return slots

    def _next_other_job(self) -> None:
        powers = int(math.log2(self._site.slots_per_node)) + 1
        mean_slots = (2**powers - 1) / powers
        rate = self._site.load * self._site.nodes * self._site.slots_per_node / (mean_slots * self._site.load_duration)

        def arrive() -> None:
            self._other_job()
            self._next_other_job()

        self._clock.at(self._clock.now + self._rng.expovariate(rate), arrive)
