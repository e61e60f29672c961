"""Starts pending jobs and detects dead ones. Called at every submission and query, and by each supervisor when its job ends, so
that pending jobs need neither a process of their own nor a master."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import uuid
from pathlib import Path

from dethpc.domain.ports import HOUSEKEEPING, TASKS, TRIALS, JobState
from dethpc.errors import SchedulerUnavailable
from dethpc.scheduler.local import processes
from dethpc.scheduler.local.jobs import CANCEL, Job, Jobs, Table
from dethpc.scheduler.open_files import as_started

_START_WITHIN = 20.0
_ROOT = Path(__file__).parents[3]
_SLOTS = "slots"
_OPEN = 16
"""Tasks without slots that run at once at least: notebooks, shells and TensorBoards mostly wait for people."""


def schedule(jobs: Jobs, *, take: bool = False) -> int | None:
    """Bury the dead, then start a supervisor for every waiting job whose slots are free: first come, first served, but for those
    that step back.

    ``take``: the caller is a supervisor that has done its work, and sees to the first of these jobs itself, whose id is returned.
    Raises: SchedulerUnavailable.
    """
    now = time.time()
    with jobs.transaction() as table:
        for dead in _dead(table):
            _bury(table, dead, now)
        starting = _startable(table, now)
        for job in starting:
            table.set(job.id, starting_until=now + _START_WITHIN)
    mine = starting.pop(0).id if take and starting else None
    try:
        for job in starting:
            _start_supervisor(jobs.folder, job.id)
    except (OSError, subprocess.CalledProcessError) as error:
        raise SchedulerUnavailable(f"no process could be started on this machine: {error}") from error
    return mine


def claim(jobs: Jobs, job_id: int, node: str) -> Job | None:
    """Take a waiting job's slots in the name of this process. None when the job may not start, or somebody else has it."""
    with jobs.transaction() as table:
        job = table.get(job_id)
        free = _free(table)
        if job is None or job.state is not JobState.PENDING or len(free) < job.slots:
            return None
        table.set(
            job_id,
            state=JobState.RUNNING.value,
            reason="",
            devices=json.dumps(free[: job.slots]),
            supervisor=processes.identity(os.getpid()),
            mark=uuid.uuid4().hex,
            starting_until=0,
            node=node,
            started_at=time.time(),
        )
        return table.get(job_id)


def _startable(table: Table, now: float) -> list[Job]:
    """Strictly in order, so that a large job is not starved by small ones. Jobs without slots have queues of their own."""
    cores = len(os.sched_getaffinity(0))
    rooms = {_SLOTS: len(_free(table)), TRIALS: cores, TASKS: max(cores, _OPEN), HOUSEKEEPING: cores}
    for running in table.running():
        if running.slots == 0:
            rooms[running.queue] -= 1
    chosen = []
    for queue in rooms:
        waiting = table.execute(
            "SELECT id, slots, starting_until FROM jobs WHERE state = 'PENDING' "
            "AND CASE WHEN slots > 0 THEN 'slots' ELSE queue END = ? ORDER BY id + nice, id",
            (queue,),
        )
        for job_id, slots, starting_until in waiting:
            rooms[queue] -= max(1, slots)
            if rooms[queue] < 0:
                break
            if starting_until < now:
                chosen.append(job_id)
    return [job for job_id in chosen if (job := table.get(job_id))]


def _free(table: Table) -> list[str]:
    held = {id for job in table.running() for id in job.held}
    return [id for id in table.settings().get("slots", []) if id not in held]


def _dead(table: Table) -> list[Job]:
    return [job for job in table.running() if not processes.alive(job.supervisor)]


def _bury(table: Table, job: Job, now: float) -> None:
    """Nobody watched the job's end, so its exit code is not known. Its slots are free only when its processes are gone."""
    processes.kill_all(lambda: processes.marked(job.mark))
    cancelled = job.wanted == CANCEL
    table.set(
        job.id,
        state=(JobState.CANCELLED if cancelled else JobState.NODE_FAIL).value,
        reason="cancelled" if cancelled else "the process that watched over the job died",
        wanted=None,
        devices="[]",
        ended_at=now,
    )


def _start_supervisor(folder: Path, job_id: int) -> None:
    """In a session of its own, and not as our child: it must not end, nor become a zombie, with us."""
    path = os.pathsep.join(filter(None, [str(_ROOT), os.environ.get("PYTHONPATH")]))
    supervisor = [sys.executable, "-m", f"{__package__}.supervisor", str(folder), str(job_id)]
    with open(folder / "supervisor.log", "ab") as log:
        subprocess.run(
            as_started(["/bin/sh", "-c", '"$@" &', "sh", *supervisor]),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",
            env={**{k: v for k, v in os.environ.items() if k != "PGPASSWORD"}, "PYTHONPATH": path},
            start_new_session=True,
            check=True,
        )
