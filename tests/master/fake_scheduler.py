"""A scheduler in memory that counts its requests, and can be slow, silent, forgetful or unclear when it is told to be.

It starts jobs in order while there are slots, and runs nothing: a job whose script ends in ``true`` or ``exit N`` ends when it
is looked at; every other one runs until the test ends it.
"""

from __future__ import annotations

import itertools
import re
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from dethpc.domain.ids import element_id, job_number
from dethpc.domain.nodes import NodeState
from dethpc.domain.ports import ArrayRequest, JobRecord, JobRequest, JobState, NodeInfo, PoolInfo, Prospect, QueuedJob
from dethpc.errors import SchedulerUnavailable, SubmitDeferred, SubmitRejected, SubmitUncertain
from tests.waiting import LONG_ENOUGH


@dataclass
class FakeJob:
    record: JobRecord
    slots: int
    ends: int | None  # the exit code with which it ends at once
    run_id: str = ""  # of an element of an array, whose name does not say it

    @property
    def live(self) -> bool:
        return self.record.state.live


@dataclass
class FakeScheduler:
    """``requests`` counts the calls by name. The other fields are faults, which a test may change at any time."""

    slots: int = 4
    weights: bool = True  # without them each job has the least priority, and nice moves nothing
    settle: float = 0.0
    requests: Counter[str] = field(default_factory=Counter)
    silent: bool = False  # nothing is answered
    gate: threading.Event | None = None  # slow: no answer before it is set
    answers_lost: bool = False  # a submission is taken, and its answer lost
    largest_array: int = 0  # how many jobs one array may have
    no_arrays: str = ""  # why arrays are refused, and jobs alone are not
    never_arrives: bool = False  # a submission is lost on its way, and nobody says so
    rejects: str = ""  # why a submission is refused for good
    rejects_after: int = 0  # how many are taken before
    defers: str = ""  # why no submission is taken at present
    elements: dict[str, str] = field(default_factory=dict)  # numbers that elements of arrays have besides
    forgotten: set[str] = field(default_factory=set)  # jobs that ``jobs`` does not list, and accounting does
    unseen: set[str] = field(default_factory=set)  # jobs that nobody tells of yet
    node_state: NodeState = NodeState.MIXED

    kind = "slurm"
    identity: str = "slurm:fake@login1:/state"

    def __post_init__(self) -> None:
        self._ids = itertools.count(1)
        self._jobs: dict[str, FakeJob] = {}
        self._lock = threading.RLock()
        self.cancelled: list[str] = []
        self.hastened: list[str] = []

    # --- what a test does to the cluster

    def end(
        self,
        job_id: str,
        state: JobState = JobState.COMPLETED,
        exit_code: int | None = 0,
        at: float | None = None,
    ) -> None:
        job = self._jobs[job_id]
        job.record = replace(job.record, state=state, exit_code=exit_code, ended_at=time.time() if at is None else at)

    def start_again(self, job_id: str, *, preempted: bool = False, held: bool = False, ago: float = 60) -> None:
        """As after a node failure or a preemption. ``held``: it may not start for a while. ``ago``: seconds since then."""
        job = self._jobs[job_id]
        at = time.time() if preempted else None
        job.record = replace(
            job.record,
            state=JobState.PENDING,
            reason="BeginTime" if held else "Resources",
            restarts=job.record.restarts + 1,
            preempted=preempted,
            preempted_at=at,
            started_at=None,
            nodes=(),
        )
        self.queued_ago(job_id, ago)

    def queued_ago(self, job_id: str, seconds: float) -> None:
        job = self._jobs[job_id]
        job.record = replace(job.record, submitted_at=time.time() - seconds)

    def give_id_again(self, job_id: str, name: str = "mine") -> None:
        """The scheduler lost its state, and another job of this user's got the id."""
        record = JobRecord(job_id, name, JobState.PENDING, reason="JobHeldUser", priority=0, nice=0)
        self._jobs[job_id] = FakeJob(record, 99, None)

    def say(self, job_id: str, reason: str) -> None:
        job = self._jobs[job_id]
        job.record = replace(job.record, reason=reason)

    def rename(self, job_id: str, name: str) -> None:
        job = self._jobs[job_id]
        job.record = replace(job.record, name=name)

    def named(self, run_id: str) -> list[JobRecord]:
        return [job.record for job in self._jobs.values() if run_id in (job.run_id, job.record.name.partition("_")[0])]

    def count(self) -> int:
        return len(self._jobs)

    # --- ports.Scheduler

    def submit(self, job: JobRequest) -> str:
        with self._asked("submit"):
            if self.rejects and len(self._jobs) >= self.rejects_after:
                raise SubmitRejected(self.rejects)
            if self.defers:
                raise SubmitDeferred(self.defers)
            return self._take([(str(next(self._ids)), job.name, job)])[0]

    def submit_array(self, array: ArrayRequest) -> list[str]:
        with self._asked("submit_array"):
            if self.no_arrays:
                raise SubmitRejected(self.no_arrays)
            if self.defers:
                raise SubmitDeferred(self.defers)
            number = str(next(self._ids))
            return self._take([(element_id(number, n), array.name, job) for n, job in enumerate(array.jobs)])

    def _take(self, jobs: Sequence[tuple[str, str, JobRequest]]) -> list[str]:
        if self.never_arrives:
            raise SubmitUncertain("sbatch gave no answer")
        for job_id, name, job in jobs:
            last = job.script.read_text().strip().splitlines()[-1]
            code = re.fullmatch(r"exit (\d+)", last)
            record = JobRecord(job_id, name, JobState.PENDING, reason="Priority", nice=job.nice)
            record.submitted_at = time.time()
            ends = 0 if last == "true" else int(code[1]) if code else None
            self._jobs[job_id] = FakeJob(record, job.slots, ends, job.run_id if name != job.name else "")
        if self.answers_lost:
            raise SubmitUncertain("sbatch gave no answer")
        return [job_id for job_id, _, _ in jobs]

    def jobs(self) -> dict[str, JobRecord]:
        with self._asked("jobs"):
            self._advance()
            hidden = self.forgotten | self.unseen
            return {id: replace(job.record) for id, job in self._jobs.items() if id not in hidden}

    def records(self, job_ids: Sequence[str]) -> dict[str, JobRecord]:
        with self._asked("records"):
            self._advance()
            known = [id for id in job_ids if id in self._jobs and id not in self.unseen]
            return {id: replace(self._jobs[id].record) for id in known}

    def find(self, names: Sequence[str]) -> list[JobRecord]:
        with self._asked("find"):
            self._advance()
            shown = [job.record for id, job in self._jobs.items() if id not in self.unseen]
            return [replace(record) for record in shown if record.name in names]

    def cancel(self, job_ids: Sequence[str]) -> None:
        with self._asked("cancel"):
            self.cancelled += job_ids
            for job_id in job_ids:
                if job_id in self._jobs and self._jobs[job_id].live:
                    self.end(job_id, JobState.CANCELLED, None)

    def requeue(self, job_id: str) -> None:
        with self._asked("requeue"):
            self.start_again(job_id)

    def nice(self, values: Mapping[str, int]) -> None:
        with self._asked("nice"):
            for job_id, value in values.items():
                job = self._jobs.get(job_id)
                if job is not None and job.record.state is JobState.PENDING:
                    job.record = replace(job.record, nice=value)

    def element(self, number: str) -> str | None:
        with self._asked("element"):
            return self.elements.get(number)

    def prospect(self, script: Path, env: Mapping[str, str], folder: Path) -> Prospect:
        return Prospect()

    def start_now(self, job_ids: Sequence[str]) -> None:
        with self._asked("start_now"):
            self.hastened += job_ids

    def pools(self) -> list[PoolInfo]:
        with self._asked("pools"):
            self._advance()
            return [PoolInfo("default", "default", 1, self.slots, self._used(), "cpu", default=True)]

    def nodes(self) -> list[NodeInfo]:
        with self._asked("nodes"):
            self._advance()
            return [
                NodeInfo("node1", self.node_state, self.slots, self._used(), ("default",), "cpu", cpus=2 * self.slots)
            ]

    def queue(self, partition: str) -> list[QueuedJob]:
        with self._asked("queue"):
            self._advance()
            found = [job.record for job in self._jobs.values() if job.live]
            return [QueuedJob(record.job_id, True, record.state is JobState.RUNNING) for record in found]

    # --- inside

    def _asked(self, request: str) -> threading.RLock:
        self.requests[request] += 1
        if self.gate is not None:
            assert self.gate.wait(LONG_ENOUGH), "the test does not open the gate"
        if self.silent:
            raise SchedulerUnavailable("the fake scheduler is silent")
        return self._lock

    def _used(self) -> int:
        return sum(job.slots for job in self._jobs.values() if job.record.state is JobState.RUNNING)

    def _advance(self) -> None:
        pending = [job for job in self._jobs.values() if job.record.state is JobState.PENDING]
        pending.sort(key=lambda job: (self.weights and job.record.nice or 0, job_number(job.record.job_id)))
        for order, job in enumerate(pending):
            job.record = replace(job.record, priority=10_000 - order if self.weights else 1)
            if job.record.reason == "BeginTime" or self._used() + job.slots > self.slots:
                continue
            job.record = replace(
                job.record, state=JobState.RUNNING, reason="", nodes=("node1",), started_at=time.time(), priority=None
            )
        for job_id, job in self._jobs.items():
            if job.record.state is JobState.RUNNING and job.ends is not None:
                self.end(job_id, JobState.FAILED if job.ends else JobState.COMPLETED, job.ends)
