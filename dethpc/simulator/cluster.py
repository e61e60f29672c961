"""Nodes with slots and a queue in front of them: as much of a scheduler as a search can feel."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from dethpc.engine.queueing.nice import LEAST
from dethpc.errors import Refused

PATIENCE = 3600.0
"""Seconds that a job lets others overtake it; then nothing behind it starts before it."""

FIRST = 2**32
"""The priority of the first job; each later one has one less."""


@dataclass(slots=True)
class Queued:
    job_id: str
    nodes: int
    per_node: int
    since: float
    number: int
    nice: int = 0
    weights: bool = True

    @property
    def priority(self) -> int:
        return FIRST - self.number - self.nice if self.weights else LEAST


@dataclass(slots=True)
class Cluster:
    """``nodes`` nodes of ``slots_per_node`` slots.

    Jobs start in the order of submission, but for those that step back (``nice``); one that fits may overtake. Without ``weights``
    nobody can step back.
    """

    nodes: int
    slots_per_node: int
    weights: bool = True
    free: list[int] = field(init=False)
    down: set[int] = field(init=False, default_factory=set)
    queue: dict[str, Queued] = field(init=False, default_factory=dict)
    submitted: int = field(init=False, default=0)
    stepped_back: bool = field(init=False, default=False)  # a job has
    held: dict[str, tuple[list[int], int]] = field(init=False, default_factory=dict)  # job id -> nodes, slots on each

    def __post_init__(self) -> None:
        self.free = [self.slots_per_node] * self.nodes

    def shape(self, slots: int) -> tuple[int, int]:
        """``(nodes, slots on each)`` of a job. Raises Refused when it can never start."""
        per_node = self.slots_per_node
        nodes = max(1, math.ceil(slots / per_node))
        if nodes > 1 and slots % per_node:
            raise Refused(f"{slots} slots on nodes of {per_node} slots each; use a multiple of {per_node}")
        if nodes > self.nodes:
            raise Refused(
                f"a trial wants {slots} slots; the cluster has {self.nodes * per_node}: it would wait for ever"
            )
        return nodes, slots // nodes

    def submit(self, job_id: str, slots: int, at: float, nice: int = 0) -> None:
        nodes, per_node = self.shape(slots)
        self.submitted += 1
        self.queue[job_id] = Queued(job_id, nodes, per_node, at, self.submitted, nice, self.weights)
        self.stepped_back = self.stepped_back or nice > 0

    def nice(self, job_id: str, value: int) -> None:
        if job_id in self.queue:
            self.queue[job_id].nice = value
            self.stepped_back = True

    def start(self, at: float) -> list[str]:
        """Jobs that start now, in order; their slots are taken."""
        started: list[str] = []
        smallest_refused = (math.inf, math.inf)
        jobs = list(self.queue.values())
        if self.stepped_back:
            jobs.sort(key=lambda job: -job.priority)
        for job in jobs:
            if job.nodes >= smallest_refused[0] and job.per_node >= smallest_refused[1]:
                continue
            places = self._places(job)
            if places is not None:
                for node in places:
                    self.free[node] -= job.per_node
                self.held[job.job_id] = (places, job.per_node)
                del self.queue[job.job_id]
                started.append(job.job_id)
            elif at - job.since > PATIENCE or (job.nodes == 1 and job.per_node <= 1):
                break
            else:
                smallest_refused = min(smallest_refused, (job.nodes, job.per_node))
        return started

    def _places(self, job: Queued) -> list[int] | None:
        """Nodes for the job, those with least room left over; None when there are too few."""
        if job.nodes == 1:
            best = -1
            for node, free in enumerate(self.free):
                if free >= job.per_node and node not in self.down and (best < 0 or free < self.free[best]):
                    best = node
                    if free == job.per_node:
                        break
            return None if best < 0 else [best]
        fit = [n for n, free in enumerate(self.free) if free >= job.per_node and n not in self.down]
        return sorted(fit, key=lambda n: (self.free[n], n))[: job.nodes] if len(fit) >= job.nodes else None

    def release(self, job_id: str) -> None:
        """The job is over, or leaves the queue."""
        self.queue.pop(job_id, None)
        nodes, per_node = self.held.pop(job_id, ([], 0))
        for node in nodes:
            self.free[node] += per_node

    def fail(self, node: int) -> list[str]:
        """The node goes down; returns the jobs that it takes along. They hold their slots until they are released."""
        self.down.add(node)
        return [job_id for job_id, (nodes, _) in self.held.items() if node in nodes]

    def repair(self, node: int) -> None:
        self.down.discard(node)
