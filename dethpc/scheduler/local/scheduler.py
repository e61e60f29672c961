"""The adapter of ``domain.ports.Scheduler`` for this machine."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from dethpc.domain.nodes import NodeState
from dethpc.domain.ports import ArrayRequest, JobRecord, JobRequest, JobState, NodeInfo, PoolInfo, Prospect, QueuedJob
from dethpc.errors import SchedulerUnavailable, SubmitRejected, SubmitUncertain
from dethpc.scheduler.local import devices, processes, queue
from dethpc.scheduler.local.jobs import CANCEL, REQUEUE, Job, Jobs, Table
from dethpc.scheduler.local.machine import Place

_LISTED_FOR = 300.0
"""Seconds for which ``jobs`` lists an ended job, as Slurm's MinJobAge."""

_KEPT_FOR = 90 * 86400.0
_IDS_AT_ONCE = 500


class LocalScheduler:
    """``domain.ports.Scheduler`` on this machine, of its own jobs alone. Jobs live on when the process that submitted them ends.

    ``home`` is DETHPC_HOME; two homes know nothing of each other and may use the same slots. ``slots``: how many GPUs, or CPU
    slots on a machine without GPUs; default all. ``grace``: seconds between TERM and KILL.
    """

    kind = "local"
    settle = 0.0

    def __init__(self, home: Path, slots: int | None = None, *, grace: float = 30.0) -> None:
        self._slots = devices.find(slots)
        self._grace = grace
        self._place = Place(Path(home))
        self._jobs = Jobs(self._place.folder)
        self._ready = False

    @property
    def identity(self) -> str:
        return self._place.identity

    def submit(self, job: JobRequest) -> str:
        total = len(self._slots.ids)
        if job.slots > total:
            raise SubmitRejected(f"the job needs {job.slots} slots and this machine has {total} ({self._slots.type})")
        if not job.script.is_file() or not job.run_dir.is_dir():
            raise SubmitRejected(f"no batch script at {job.script}, or no run directory at {job.run_dir}")
        self._prepare()
        try:
            with self._jobs.transaction() as table:
                job_id = table.add(
                    name=job.name,
                    script=str(job.script.absolute()),
                    run_dir=str(job.run_dir.absolute()),
                    slots=job.slots,
                    env=json.dumps(dict(job.env)),
                    state=JobState.PENDING.value,
                    reason="Resources",
                    submitted_at=time.time(),
                    nice=job.nice,
                    queue=job.queue,
                )
            self._schedule()
        except SchedulerUnavailable as error:
            raise SubmitUncertain(str(error)) from error
        return str(job_id)

    @property
    def largest_array(self) -> int:
        return 0

    def submit_array(self, array: ArrayRequest) -> list[str]:
        raise SubmitRejected("this machine's own scheduler has no job arrays")

    def jobs(self) -> dict[str, JobRecord]:
        self._schedule()
        with self._jobs.transaction() as table:
            listed = table.listed(time.time() - _LISTED_FOR)
        return {str(job.id): job.record() for job in listed}

    def records(self, job_ids: Sequence[str]) -> dict[str, JobRecord]:
        self._schedule()
        with self._jobs.transaction() as table:
            return {str(job.id): job.record() for job in _existing_jobs(table, job_ids)}

    def find(self, names: Sequence[str]) -> list[JobRecord]:
        self._schedule()
        with self._jobs.transaction() as table:
            jobs = [job for name in set(names) for job in table.select("name = ?", (name,))]
        return [job.record() for job in sorted(jobs, key=lambda job: job.id)]

    def cancel(self, job_ids: Sequence[str]) -> None:
        self._schedule()
        self._want(job_ids, CANCEL)

    def requeue(self, job_id: str) -> None:
        self._schedule()
        self._want([job_id], REQUEUE)

    def nice(self, values: Mapping[str, int]) -> None:
        self._prepare()
        with self._jobs.transaction() as table:
            for job in _existing_jobs(table, list(values)):
                if job.state is JobState.PENDING:
                    table.set(job.id, nice=values[str(job.id)])

    def element(self, number: str) -> str | None:
        return None  # there are no arrays here

    def prospect(self, script: Path, env: Mapping[str, str], folder: Path) -> Prospect:
        return Prospect()  # what does not fit on this machine is refused before

    def start_now(self, job_ids: Sequence[str]) -> None:
        """Nothing is held back here."""

    def pools(self) -> list[PoolInfo]:
        used = self._used()
        return [
            PoolInfo(
                name="default",
                partition="local",
                nodes=1,
                slots=len(self._slots.ids),
                slots_used=used,
                slot_type=self._slots.type,
                default=True,
                description="this machine",
            )
        ]

    def nodes(self) -> list[NodeInfo]:
        total, used = len(self._slots.ids), self._used()
        return [
            NodeInfo(
                name=socket.gethostname(),
                state=NodeState.IDLE if used == 0 else NodeState.ALLOCATED if used >= total else NodeState.MIXED,
                slots=total,
                slots_used=used,
                pools=("default",),
                slot_type=self._slots.type,
                cpus=max(os.cpu_count() or 1, total),  # who asks for more slots than cores means to share them
                memory_mb=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20,
                address="127.0.0.1",
            )
        ]

    def queue(self, partition: str) -> list[QueuedJob]:
        """Those of this home; jobs of others use this machine unseen."""
        return [
            QueuedJob(record.job_id, True, record.state is JobState.RUNNING, 1, 0, record.started_at, record.nodes)
            for record in self.jobs().values()
            if record.state in (JobState.PENDING, JobState.RUNNING)
        ]

    def _prepare(self) -> None:
        """Supervisors, which outlive this process, read from the table what they need to know."""
        if not self._ready:
            self._place.settle()
            self._jobs.create()
            with self._jobs.transaction() as table:
                table.configure({"slots": self._slots.ids, "slot_type": self._slots.type, "grace": self._grace})
                table.execute("DELETE FROM jobs WHERE ended_at < ?", (time.time() - _KEPT_FOR,))
            self._ready = True

    def _schedule(self) -> None:
        self._prepare()
        queue.schedule(self._jobs)

    def _used(self) -> int:
        self._schedule()
        with self._jobs.transaction() as table:
            return sum(job.slots for job in table.running())

    def _want(self, job_ids: Sequence[str], what: str) -> None:
        now = time.time()
        with self._jobs.transaction() as table:
            live = [job for job in _existing_jobs(table, job_ids) if job.state.live]
            for job in live:
                if job.state is JobState.RUNNING:
                    if job.wanted != CANCEL:  # a cancelled job is not queued again
                        table.set(job.id, wanted=what)
                elif what == CANCEL:
                    table.set(job.id, state=JobState.CANCELLED.value, reason="cancelled", ended_at=now)
        for job in live:
            if job.supervisor and processes.alive(job.supervisor):
                processes.send([processes.pid_of(job.supervisor)], signal.SIGUSR1)


def _existing_jobs(table: Table, job_ids: Sequence[str]) -> list[Job]:
    ids = sorted({int(job_id) for job_id in job_ids if job_id.isdecimal() and len(job_id) < 19})
    chunks = [ids[start : start + _IDS_AT_ONCE] for start in range(0, len(ids), _IDS_AT_ONCE)]
    return [
        job for chunk in chunks for job in table.select(f"id IN ({', '.join('?' * len(chunk))}) ORDER BY id", chunk)
    ]
