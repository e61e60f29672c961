"""A Slurm in virtual time behind the port: it queues and starts jobs on nodes, and can do wrong what a real one does wrong."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from dethpc.domain.ids import element_id, job_number
from dethpc.domain.nodes import NodeState
from dethpc.domain.ports import ArrayRequest, JobRecord, JobRequest, JobState, NodeInfo, PoolInfo, Prospect, QueuedJob
from dethpc.errors import SchedulerUnavailable, SubmitDeferred, SubmitRejected, SubmitUncertain
from tests.simulator.world.clock import Clock

POOL = "main"
REMEMBERED = 120.0
"""Seconds for which a job that has ended is listed; then accounting alone knows it."""

KILL_WAIT = 30.0
"""Seconds from TERM to KILL."""


@dataclass
class Node:
    name: str
    slots: int
    up: bool = True
    drained: bool = False


@dataclass
class Job:
    record: JobRecord
    slots: int
    run_dir: Path
    link: Path | None = None  # by which an element of an array finds its run's directory
    process: Any = None  # the node.Process of its present start
    foreign: bool = False  # another job of the same user, which nobody here may touch
    held: bool = False  # it was queued again, and may not start yet
    ending: JobState | None = None  # how it will have ended once its processes are gone
    requeue: bool = False  # whether it is queued again then
    over_at: float = 0.0

    @property
    def id(self) -> str:
        return self.record.job_id

    @property
    def live(self) -> bool:
        return self.record.state.live

    def update(self, **changes: Any) -> None:
        self.record = replace(self.record, **changes)


@dataclass
class Mood:
    """What is wrong with slurmctld at present."""

    silent: bool = False
    loses_answers: float = 0.0
    listing: str = "whole"  # partial: some jobs are missing; empty: all, with exit code 0
    defers: str = ""
    rejects: str = ""
    no_arrays: str = ""  # why arrays are refused, and jobs alone are not
    down: bool = False  # the partition: nothing starts


@dataclass
class Slurm:
    clock: Clock
    rng: random.Random
    begin: Callable[[Job], Any]  # starts the processes of a job
    point: Callable[[], None]  # an instant at which whoever asks may be killed
    forbidden: Callable[[str], None]  # told of what nobody may do
    may_reject: Callable[[str], bool]  # whether a job of this name asks for what was taken before
    acted: Callable[[str], None]  # told of every word that changes something
    settle: float = 30.0
    mood: Mood = field(default_factory=Mood)
    asked: Counter[str] = field(default_factory=Counter)

    kind = "slurm"
    identity: str = "slurm:main@login1:/state"

    def __post_init__(self) -> None:
        self.nodes_ = [Node(f"node{i}", 4) for i in range(3)]
        self.jobs_: dict[str, Job] = {}
        self.accounting: dict[str, JobRecord] = {}
        self.lost: list[Job] = []  # jobs that the controller forgot
        self._next = 1
        self.arrays = 0  # how many were submitted

    # --- the queue

    def _create(self, request: JobRequest | ArrayRequest) -> list[Job]:
        """One job, or one for each element of an array."""
        at, array = self.clock.wall(), isinstance(request, ArrayRequest)
        made = []
        for index, each in enumerate(request.jobs if isinstance(request, ArrayRequest) else [request]):
            id = element_id(str(self._next), index) if array else str(self._next)
            record = JobRecord(id, request.name, JobState.PENDING, "Priority", submitted_at=at, nice=each.nice)
            link = request.folder / str(index) if isinstance(request, ArrayRequest) else None
            made.append(Job(record, each.slots, each.run_dir, link))
            self.jobs_[id] = made[-1]
        self._next += 1
        self._soon()
        return made

    def _soon(self) -> None:
        self.clock.after(self.rng.uniform(0.5, 4.0), self.start_jobs)

    def start_jobs(self) -> None:
        pending = [job for job in self.jobs_.values() if job.record.state is JobState.PENDING and not job.foreign]
        pending.sort(key=lambda job: (job.record.nice or 0, job_number(job.id)))
        for order, job in enumerate(pending):
            job.update(priority=10_000 - order)
            node = next((n for n in self.nodes_ if n.up and not n.drained and self._free(n) >= job.slots), None)
            if node is None or job.held or self.mood.down:
                continue
            job.update(
                state=JobState.RUNNING,
                reason="",
                nodes=(node.name,),
                started_at=self.clock.wall(),
                priority=None,
                preempted=False,
            )
            job.ending, job.requeue = None, False
            job.process = self.begin(job)

    def _free(self, node: Node) -> int:
        busy = (job for job in self.jobs_.values() if job.record.state in (JobState.RUNNING, JobState.COMPLETING))
        return node.slots - sum(job.slots for job in busy if job.record.nodes == (node.name,))

    def processes_ended(self, job: Job, exit_code: int | None) -> None:
        """The processes of the job's present start are gone."""
        job.process = None
        if not job.live:
            return
        if job.requeue:
            self._queue_again(job)
            return
        state = job.ending or (JobState.COMPLETED if exit_code == 0 else JobState.FAILED)
        self._over(job, state, exit_code)

    def _over(self, job: Job, state: JobState, exit_code: int | None) -> None:
        code = None if exit_code is None else exit_code % 256
        signal = exit_code - 128 if exit_code is not None and exit_code > 128 else None
        job.update(state=state, exit_code=code, signal=signal, ended_at=self.clock.wall())
        job.over_at = self.clock.now
        self.accounting[job.id] = job.record
        self._soon()

    def _queue_again(self, job: Job) -> None:
        job.requeue, job.ending, job.held = False, None, True
        job.update(
            state=JobState.PENDING,
            reason="BeginTime",
            restarts=job.record.restarts + 1,
            nodes=(),
            started_at=None,
            nice=job.record.nice,
        )

        def release() -> None:
            if job.held:
                job.held = False
                job.update(reason="Resources")
                self.start_jobs()

        self.clock.after(120.0, release)
        self._soon()

    # --- what befalls it

    def running(self) -> list[Job]:
        return [job for job in self.jobs_.values() if job.record.state is JobState.RUNNING and job.process is not None]

    def lose_node(self, node: Node, *, zombies: bool, requeue: bool) -> None:
        node.up = False
        for job in [job for job in self.jobs_.values() if job.record.nodes == (node.name,) and job.live]:
            if job.process is not None:
                job.process.lose(zombie=zombies)
                job.process = None
            if requeue:
                self._queue_again(job)
            else:
                self._over(job, JobState.NODE_FAIL, None)

    def signal(self, job: Job, ending: JobState | None, *, requeue: bool, word: str, grace: float) -> None:
        """TERM now, KILL after ``grace``."""
        process = job.process
        if process is None:
            return
        job.ending, job.requeue = ending, requeue
        process.told(word, self.clock.wall() + grace)

        def kill() -> None:
            if job.process is process:
                process.end(None)

        self.clock.after(grace, kill)

    def preempt(self, job: Job, *, requeue: bool, grace: float) -> None:
        job.update(preempted=True, preempted_at=self.clock.wall())
        self.signal(job, None if requeue else JobState.PREEMPTED, requeue=requeue, word="preempted", grace=grace)

    def forget(self, *, ids_again: bool) -> None:
        """StateSaveLocation is gone. What runs goes on for a while, until slurmd learns that nobody knows it."""
        gone, self.jobs_ = list(self.jobs_.values()), {}
        mine = [job for job in gone if job.foreign]
        for job in gone:
            if job.process is not None:
                job.process.disown()
                self.lost.append(job)
                self.clock.after(self.rng.uniform(5.0, 200.0), job.process.vanish)
        if ids_again:
            self._next = 1
            for _ in range(self.rng.randint(1, 4)):
                self.add_foreign()
        for job in mine:
            self.jobs_.setdefault(job.id, job)

    def add_foreign(self) -> None:
        record = JobRecord(str(self._next), "mine", JobState.PENDING, "JobHeldUser", priority=0, nice=0)
        self._next += 1
        self.jobs_[record.job_id] = Job(record, 1, Path("/nowhere"), foreign=True)

    # --- ports.Scheduler

    def _ask(self, what: str) -> None:
        self.asked[what] += 1
        self.point()
        if self.mood.silent:
            self.clock.sleep(10.0)
            raise SchedulerUnavailable("slurmctld does not answer")

    largest_array = 1001

    def submit_array(self, array: ArrayRequest) -> list[str]:
        self.arrays += 1
        return [job.id for job in self._sbatch(array)]

    def submit(self, request: JobRequest) -> str:
        return self._sbatch(request)[0].id

    def _sbatch(self, request: JobRequest | ArrayRequest) -> list[Job]:
        self.asked["submit"] += 1
        self.point()
        mood = self.mood
        self.acted(f"submit {request.name}")
        if mood.silent or self.rng.random() < mood.loses_answers:
            fate = self.rng.choice(["never", "now", "late"])
            if fate == "now":
                self._create(request)
            elif fate == "late":
                self.clock.after(self.rng.uniform(0, self.settle * 0.9), lambda: self._create(request) and None)
            raise SubmitUncertain("sbatch gave no answer")
        if mood.defers:
            raise SubmitDeferred(mood.defers)
        if mood.rejects and self.may_reject(request.name):
            raise SubmitRejected(mood.rejects)
        if self.mood.no_arrays and isinstance(request, ArrayRequest):
            raise SubmitRejected(self.mood.no_arrays)
        made = self._create(request)
        self.point()
        return made

    def _listed(self) -> dict[str, JobRecord]:
        now = self.clock.now
        return {id: replace(job.record) for id, job in self.jobs_.items() if job.live or now - job.over_at < REMEMBERED}

    def jobs(self) -> dict[str, JobRecord]:
        self._ask("jobs")
        listed = self._listed()
        if self.mood.listing == "empty":
            return {}
        if self.mood.listing == "partial":
            return {id: record for id, record in listed.items() if self.rng.random() < 0.5}
        return listed

    def records(self, job_ids: Sequence[str]) -> dict[str, JobRecord]:
        self._ask("records")
        if self.mood.listing == "empty":
            return {}
        known = {**self.accounting, **self._listed()}
        return {id: replace(known[id]) for id in job_ids if id in known}

    def find(self, names: Sequence[str]) -> list[JobRecord]:
        self._ask("find")
        known = {**self.accounting, **self._listed()}
        return [replace(record) for record in known.values() if record.name in names]

    def cancel(self, job_ids: Sequence[str]) -> None:
        self._ask("cancel")
        for id in job_ids:
            self.acted(f"cancel {id}")
            job = self.jobs_.get(id)
            if job is None or not job.live:
                continue
            if job.foreign:
                self.forbidden(f"job {id} of the user's own was cancelled")
            elif job.process is None:
                self._over(job, JobState.CANCELLED, None)
            elif job.ending is not JobState.CANCELLED:
                self.signal(job, JobState.CANCELLED, requeue=False, word="preempted", grace=KILL_WAIT)
        self.point()

    def requeue(self, job_id: str) -> None:
        self._ask("requeue")

    def nice(self, values: Mapping[str, int]) -> None:
        self._ask("nice")
        for id, value in values.items():
            job = self.jobs_.get(id)
            if job is not None and job.record.state is JobState.PENDING:
                if job.foreign:
                    self.forbidden(f"job {id} of the user's own was made nice")
                job.update(nice=value)

    def element(self, number: str) -> str | None:
        self._ask("element")
        return None  # nobody here knows an element by another number

    def prospect(self, script: Path, env: Mapping[str, str], folder: Path) -> Prospect:
        return Prospect()

    def start_now(self, job_ids: Sequence[str]) -> None:
        self._ask("start_now")
        for id in job_ids:
            if (job := self.jobs_.get(id)) is not None and job.held:
                job.held = False
                job.update(reason="Resources")
        self._soon()

    def pools(self) -> list[PoolInfo]:
        self._ask("pools")
        slots = sum(node.slots for node in self.nodes_)
        used = sum(node.slots - self._free(node) for node in self.nodes_)
        up = "down" if self.mood.down else "up"
        return [PoolInfo(POOL, POOL, len(self.nodes_), slots, used, "cuda", available=up, default=True)]

    def nodes(self) -> list[NodeInfo]:
        self._ask("nodes")
        return [
            NodeInfo(
                node.name,
                NodeState.DOWN if not node.up else NodeState.DRAINED if node.drained else NodeState.MIXED,
                node.slots,
                node.slots - self._free(node),
                (POOL,),
                "cuda",
                cpus=16,
                memory_mb=64_000,
            )
            for node in self.nodes_
        ]

    def queue(self, partition: str) -> list[QueuedJob]:
        self._ask("queue")
        return [QueuedJob(id, True, job.record.state is JobState.RUNNING) for id, job in self.jobs_.items() if job.live]
