"""Runs a job: ``python -m dethpc.scheduler.local.supervisor FOLDER JOB_ID``, and then the next one that waits, which so waits
for no Python to start.

It is the subreaper of all that the job starts, so nothing escapes it and no zombie stays. It tells the job to stop when the
table wants that (USR1 says: look), and writes how the job ended.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from dethpc.domain.ports import JobState
from dethpc.errors import SchedulerUnavailable
from dethpc.rundir.files import open_to_append
from dethpc.scheduler.local import processes, queue
from dethpc.scheduler.local.jobs import CANCEL, REQUEUE, Job, Jobs

_SIGNALS = {signal.SIGCHLD, signal.SIGUSR1, signal.SIGTERM, signal.SIGHUP, signal.SIGINT}
_LOOK_AGAIN = 60.0
_SERVES = 3600.0
"""Seconds after which a supervisor takes no further job: it runs the code of the release that started it."""

_RETRY = 1.0
"""Seconds after which a table that could not be written is tried again."""

_LEFTOVERS = 2.0
"""Seconds for processes that outlive the script, between TERM and KILL."""


def main() -> None:
    folder, job_id = Path(sys.argv[1]), int(sys.argv[2])
    os.umask(0o077)
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)  # taken one by one, by sigtimedwait
    jobs = Jobs(folder)
    next_job: int | None = job_id
    serves_until = time.monotonic() + _SERVES
    while next_job is not None and (job := queue.claim(jobs, next_job, socket.gethostname())) is not None:
        supervisor = Supervisor(jobs, job)
        processes.be_subreaper(True)
        supervisor.run()
        processes.be_subreaper(False)  # supervisors of other jobs, started here, are not the next job's processes
        next_job = queue.schedule(jobs, take=not supervisor.told_to_end and time.monotonic() < serves_until)


class Supervisor:
    """Watches over one start of a job."""

    def __init__(self, jobs: Jobs, job: Job) -> None:
        self._jobs = jobs
        self._job = job
        with jobs.transaction() as table:
            settings = table.settings()
        self._grace = float(settings.get("grace", 30.0))
        self._gpus = settings.get("slot_type") == "cuda"
        self._script: subprocess.Popen[bytes] | None = None  # kept, for Popen reaps a child when it is itself collected
        self._status: int | None = None
        self.told_to_end = False

    def run(self) -> None:
        try:
            self._start()
        except OSError as error:
            self._finish(JobState.FAILED, f"the script could not be started: {error}")
            return
        stopped = self._watch()
        self._stop(self._grace if stopped else _LEFTOVERS)
        if self.told_to_end:
            self._finish(JobState.NODE_FAIL, "the job's supervisor was told to stop")
        elif stopped:
            self._finish(JobState.CANCELLED, "cancelled")
        else:
            self._finish(JobState.COMPLETED if self._status == 0 else JobState.FAILED, "")

    def _start(self) -> None:
        job = self._job
        env = {
            **json.loads(job.env),
            "DETHPC_JOB_ID": str(job.id),
            "DETHPC_RESTART_COUNT": str(job.restarts),
            processes.MARK: job.mark,
        }
        if self._gpus:
            env["CUDA_VISIBLE_DEVICES"] = ",".join(job.held)
        with open_to_append(Path(job.run_dir) / "slurm.log") as log:
            self._script = subprocess.Popen(
                ["/bin/bash", job.script],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=job.run_dir,
                env=env,
                start_new_session=True,
                preexec_fn=_before_script,
            )

    def _watch(self) -> bool:
        """Until the script ends, or somebody wants it to: then True."""
        look = True
        while True:
            if look and self._has_request():
                return True
            if self._status is not None:
                return False
            came = signal.sigtimedwait(_SIGNALS, _LOOK_AGAIN)
            self._reap()
            if came is not None and came.si_signo in (signal.SIGTERM, signal.SIGINT):
                self.told_to_end = True
                return True
            look = came is None or came.si_signo == signal.SIGUSR1

    def _has_request(self) -> bool:
        try:
            with self._jobs.transaction() as table:
                job = table.get(self._job.id)
        except SchedulerUnavailable:
            return False  # a full disk ends no job
        return job is not None and job.wanted is not None

    def _stop(self, grace: float) -> None:
        """TERM to everything, and KILL to what is left after ``grace`` seconds."""
        deadline = time.monotonic() + grace
        processes.send(self._processes(), signal.SIGTERM)
        while self._processes() and time.monotonic() < deadline:
            signal.sigtimedwait(_SIGNALS, 0.1)
            self._reap()
        processes.kill_all(self._processes)
        self._reap()

    def _processes(self) -> list[int]:
        if (
            not self._reap()
        ):  # the usual end: a look at each of a large machine's processes takes longer than all else there
            return []
        return processes.descendants(os.getpid())

    def _reap(self) -> bool:
        """Whether a child is left. Without one there is no descendant: orphans among them become children of this process."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if self._script is not None and pid == self._script.pid:
                self._status = self._script.returncode = os.waitstatus_to_exitcode(status)

    def _finish(self, state: JobState, reason: str) -> None:
        """Write how the job ended, as soon as there is room for that. Raises: SchedulerUnavailable when there will be none."""
        now = time.time()
        while True:
            try:
                return self._record(state, reason, now)
            except SchedulerUnavailable:
                if not self._jobs.folder.exists():
                    raise
                came = signal.sigtimedwait(_SIGNALS, _RETRY)
                if came is not None and came.si_signo in (signal.SIGTERM, signal.SIGINT):
                    raise

    def _record(self, state: JobState, reason: str, now: float) -> None:
        with self._jobs.transaction() as table:
            job = table.get(self._job.id)
            if job is None:
                return
            if job.wanted == REQUEUE:
                table.set(
                    job.id,
                    state=JobState.PENDING.value,
                    reason="Resources",
                    restarts=job.restarts + 1,
                    **_NOTHING_HELD,
                    node="",
                    started_at=None,
                )
                return
            if job.wanted == CANCEL and self.told_to_end:
                state, reason = JobState.CANCELLED, "cancelled"
            status = self._status
            table.set(
                job.id,
                state=state.value,
                reason=reason,
                exit_code=status if status is not None and status >= 0 else None,
                signal=-status if status is not None and status < 0 else None,
                ended_at=now,
                **_NOTHING_HELD,
            )


_NOTHING_HELD = {"wanted": None, "devices": "[]", "supervisor": None}


def _before_script() -> None:
    processes.die_with_parent()
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


if __name__ == "__main__":
    main()
