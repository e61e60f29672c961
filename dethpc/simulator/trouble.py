"""Faults befall nodes and attempts of a simulation."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

from dethpc.domain.attempts.stopping import StopReason
from dethpc.domain.ports import JobState
from dethpc.simulator.clock import Clock
from dethpc.simulator.faults import Faults
from dethpc.simulator.jobs import FAILED, Job
from dethpc.simulator.slots import Slots
from dethpc.simulator.training import Training

GRACE = 300.0
"""Seconds between the scheduler's word that it takes the slots and its taking them."""


class Trouble:
    def __init__(self, faults: Faults, clock: Clock, rng: random.Random, training: Training, slots: Slots) -> None:
        self._faults, self._clock, self._rng = faults, clock, rng
        self._training, self._slots = training, slots

    def set_off(self) -> None:
        """From now on nodes fail."""
        if self._faults.node_failure is not None:
            for node in range(self._slots.cluster.nodes):
                self._clock.at(self._rng.expovariate(1 / self._faults.node_failure), partial(self._fail, node))

    def threaten(self, job: Job) -> None:
        """What will befall the job's new attempt, if it lives that long."""
        faults = self._faults
        if faults.preemption is not None:
            self._befall(job, self._rng.expovariate(1 / faults.preemption), self._preempt)
        if faults.loss is not None:
            self._befall(job, self._rng.expovariate(1 / faults.loss), self._lose)
        if faults.user_error and self._rng.random() < faults.user_error:
            after = self._rng.uniform(0, self._training.duration(job))
            self._befall(job, after, lambda job: self._training.end(job, JobState.FAILED, FAILED))

    def _befall(self, job: Job, after: float, then: Callable[[Job], None]) -> None:
        attempt = job.attempts[-1]

        def maybe() -> None:
            if not attempt.over and job.state is JobState.RUNNING:
                then(job)

        self._clock.at(self._clock.now + after, maybe)

    def _preempt(self, job: Job) -> None:
        if not job.stop:
            self._training.stop(job, StopReason.PREEMPTED)
            self._befall(job, GRACE, lambda job: self._training.end(job, JobState.PREEMPTED, None, requeue=True))

    def _lose(self, job: Job) -> None:
        self._training.end(job, JobState.FAILED, None, evidence=False)

    def _fail(self, node: int) -> None:
        for job_id in self._slots.cluster.fail(node):
            job = self._training.jobs.get(job_id)
            if job is not None:
                self._training.end(job, JobState.NODE_FAIL, None, requeue=True)
            else:
                self._slots.free(job_id)
        self._clock.at(self._clock.now + self._faults.repair, lambda: self._repair(node))

    def _repair(self, node: int) -> None:
        assert self._faults.node_failure is not None
        self._slots.cluster.repair(node)
        self._slots.start()
        self._clock.at(
            self._clock.now + self._rng.expovariate(1 / self._faults.node_failure), partial(self._fail, node)
        )
