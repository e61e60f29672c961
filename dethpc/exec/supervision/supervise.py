"""Supervises one process of the user's until it and all its descendants have ended.

One loop without threads, woken by the process's output, the scheduler's signals, the other nodes, and the files by which the
master kills.
"""

from __future__ import annotations

import functools
import os
import selectors
import signal
import subprocess
import time
from typing import Callable, Optional, Sequence

from dethpc.errors import RunDirError
from dethpc.exec import slurm
from dethpc.exec.supervision import processes
from dethpc.exec.supervision.signals import Signals
from dethpc.exec.supervision.tee import Log, Stream
from dethpc.exec.usage import Gpus, Meter
from dethpc.rundir.layout import RunDir

TICK = 1.0
LOOK_SECONDS = 2.0  # once a signal has come
QUIET_SECONDS = 30.0  # before: a kill comes by a signal, too, and this file system is everybody's
TERM_SECONDS = 2.0  # between asking what is left to end and killing it
DRAIN_SECONDS = 2.0
REQUEST_SECONDS = (
    2.0  # for the request to stop to be seen here, after a child was ended by the signal that came with it
)
NOTICE_SECONDS = 0.5  # for that signal to come here, after a child ended otherwise and left processes that withstand it
_CHUNK = 1 << 16


class Watch:
    """Reasons from outside to end user code at once, as the run directory states them."""

    def __init__(self, run: RunDir, k: int, signals: Signals, stop_at: Optional[float] = None) -> None:
        self._run, self._attempt, self._signals = run, run.attempt(k), signals
        self._stop_at = stop_at
        self._looked_at = 0.0
        self._kill_at: Optional[float] = None
        self._killed = ""

    @property
    def stop_asked(self) -> bool:
        return self._attempt.stop.exists()

    @property
    def signalled(self) -> bool:
        return self._signals.came

    @property
    def term_at(self) -> Optional[float]:
        """When the last TERM came, in epoch seconds."""
        return self._signals.term_at

    @property
    def acknowledged(self) -> bool:
        """Whether the training knows of the request to stop."""
        return self._attempt.ack.exists()

    def verdict(self) -> str:
        """Why user code must end now, or ""."""
        if self._signals.at_once:
            return "interrupted"
        self.look_at_clock()
        if time.monotonic() - self._looked_at >= (LOOK_SECONDS if self._signals.came else QUIET_SECONDS):
            self._looked_at = time.monotonic()
            self._look()
        if self._killed:
            return self._killed
        if self._kill_at is not None and time.time() >= self._kill_at:
            return "it did not stop in the time allowed"
        return ""

    def look_at_clock(self) -> None:
        """Ask the trial to stop when the job's time is nearly up: the scheduler's own word comes early or not at all."""
        if self._stop_at is not None and time.time() >= self._stop_at:
            self._stop_at = None
            self._signals.time_is_up()

    def _look(self) -> None:
        try:
            reason = self._run.kill()
            if reason is not None:
                self._killed = f"killed: {reason}" if reason else "killed"
            request = self._attempt.stop_request() if self._signals.came else None
            if request is not None and request.deadline is not None:
                deadline, at = self._last_moment(request.deadline), request.at or time.time()
                # A little before the scheduler does it, so that the end can still be reported.
                self._kill_at = None if deadline is None else deadline - min(5.0, max(0.0, (deadline - at) / 4))
        except (OSError, RunDirError):
            pass  # a file system that hiccups; looked at again soon

    def _last_moment(self, deadline: float) -> Optional[float]:
        """When the scheduler kills; None: not known. Slurm does so some time after the TERM that it sends at the time limit, or
        somewhat later."""
        if not slurm.job_id():
            return deadline
        slurm.configuration.look()  # TERM is near: the answer is there when it comes
        if self._signals.term_at is None or self._signals.term_at < deadline - 1:
            return None
        wait = slurm.kill_wait()
        return None if wait is None else self._signals.term_at + wait


class _Survivors:
    """Processes that have withstood the TERM of a request to stop which ended the process that had started them, or another
    between the two: a shell whose command was ended so may run its next one, and end well, before TERM comes to itself."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._since: Optional[float] = None  # when the child had ended, in epoch seconds
        self._acknowledged = False  # by then: what the child had to do for the request has been done
        self.pids: list[int] = []  # in the order in which they were seen, also those that have ended

    def should_wait(self, status: int, descendants: Callable[[], Sequence[int]]) -> bool:
        """Whether to wait on, the child having ended with wait status ``status``."""
        if self._since is None:
            self._since, self._acknowledged = time.time(), self._watch.acknowledged
        by_term = _ended_by_term(status)
        alive = descendants()
        withstanding = processes.withstand_term(alive)
        if not self._watch.stop_asked:  # children are signalled before this process
            limit = REQUEST_SECONDS if by_term else NOTICE_SECONDS if withstanding else 0.0
            return not self._watch.signalled and time.time() < self._since + limit
        if not by_term and (self._acknowledged or not self._soon_after_term(self._since)):
            return False
        self.pids += [pid for pid in withstanding if pid not in self.pids]
        return any(pid in alive for pid in self.pids)

    def _soon_after_term(self, at: float) -> bool:
        return self._watch.term_at is not None and at < self._watch.term_at + REQUEST_SECONDS


def _ended_by_term(status: int) -> bool:
    """Also of a shell, which gives its last command's end as an exit code."""
    if os.WIFSIGNALED(status):
        return os.WTERMSIG(status) == signal.SIGTERM
    return os.WEXITSTATUS(status) == 128 + signal.SIGTERM


class Supervisor:
    """The loop, and what it reads: signals, outputs of processes, and whatever else is registered with ``also``."""

    def __init__(self, log: Log, signals: Signals, watch: Watch, meter: Meter) -> None:
        self._log, self._signals, self.watch, self.meter = log, signals, watch, meter
        self._selector = selectors.DefaultSelector()
        self._selector.register(signals, selectors.EVENT_READ, signals.drain)
        self._outputs: dict[int, Stream] = {}
        self._sessions: set[int] = set()
        self._statuses: dict[int, int] = {}
        self.relay = (
            0  # the process id of what leads to the child from outside; it withstands TERM, and ends with the rest
        )
        self.ended_because = ""
        self.ended_at: Optional[float] = None
        self.outlived = False  # the signal that asks for a checkpoint ended the last child, and not what it had started

    def close(self) -> None:
        self._selector.close()

    def also(self, fd: int, act: Callable[[], None]) -> None:
        """Call ``act`` whenever ``fd`` is readable."""
        self._selector.register(fd, selectors.EVENT_READ, act)

    def no_more(self, fd: int) -> None:
        self._selector.unregister(fd)

    def meter_gpus(self, uuids: Sequence[str]) -> None:
        """Measure the use of these from now on, until ``end_all``."""
        self.meter.gpus = Gpus(uuids, self.also, self.no_more)

    def poll(self, seconds: float) -> bool:
        """One turn of the loop; True when something was to do."""
        self.meter.look(self._sessions)
        ready = self._selector.select(seconds)
        for key, _ in ready:
            if self._selector.get_map().get(key.fd) is key:  # an earlier one of this turn may have closed it
                key.data()
        return bool(ready)

    def wait_for(
        self,
        child: subprocess.Popen[bytes],
        end_now: Callable[[], str] = lambda: "",
        meanwhile: Callable[[], None] = lambda: None,
    ) -> int:
        """Wait status of ``child``. A verdict from outside, or a reason from ``end_now``, ends every process first;
        the reason is then in ``ended_because``. Otherwise what the child left behind lives on until ``end_all``.
        ``meanwhile`` is called at least once a second.

        Some schedulers send the TERM that asks for a checkpoint to every process of a job. Where it ended the child, say a shell,
        but not processes below it, those are waited for and their status is the answer, with ``outlived`` set."""
        self._follow(child)
        survivors = _Survivors(self.watch)
        while True:
            self._reap()
            if child.pid in self._statuses and not survivors.should_wait(self._statuses[child.pid], self._programs):
                break
            self.ended_because = self.watch.verdict() or end_now()
            if self.ended_because:
                self.ended_at = time.time()
                self._log.say("ERROR", f"dethpc: ending the processes: {self.ended_because}")
                self.end_all()
                while (
                    child.pid not in self._statuses
                ):  # a process of several threads is a zombie before it can be collected
                    self.poll(0.02)
                    self._reap()
                break
            meanwhile()
            self.poll(TICK)
        self._settle()
        status = self._statuses[child.pid]
        self.outlived = bool(survivors.pids) and not self.ended_because
        if self.outlived:
            while any(map(processes.is_own_child, survivors.pids)):
                self.poll(0.02)
                self._reap()
            status = next((self._statuses[pid] for pid in survivors.pids if self._statuses.get(pid)), 0)
        child.returncode = os.WEXITSTATUS(status) if os.WIFEXITED(status) else -os.WTERMSIG(status)
        return status

    def end_all(self) -> None:
        """End every descendant, by TERM and then by KILL, and return when none is left."""
        if self.meter.gpus is not None:
            self.meter.gpus.close()
        kill_at = time.monotonic() + TERM_SECONDS
        remaining = self._descendants()
        processes.send(remaining, signal.SIGTERM)
        if self.relay in remaining:
            processes.send([self.relay], signal.SIGKILL)
        while remaining:
            if time.monotonic() >= kill_at:
                processes.send(remaining, signal.SIGKILL)
            self.poll(0.02)
            remaining = self._descendants()
        self._settle()
        for fd in list(self._outputs):
            self._end_output(fd)

    def _descendants(self) -> list[int]:
        self._reap()
        abandoned = self.meter.gpus.abandoned if self.meter.gpus is not None else None
        return [pid for pid in processes.descendants(self._sessions) if pid != abandoned]

    def _programs(self) -> list[int]:
        """The user's."""
        return [pid for pid in self._descendants() if pid != self.relay]

    def _reap(self) -> None:
        self._statuses.update(processes.reap())

    def _settle(self) -> None:
        """Read what ended processes have written."""
        until = time.monotonic() + DRAIN_SECONDS
        while self._outputs and time.monotonic() < until and self.poll(0.05):
            pass

    def _follow(self, child: subprocess.Popen[bytes]) -> None:
        self._sessions.add(child.pid)
        for pipe, stdtype in ((child.stdout, "stdout"), (child.stderr, "stderr")):
            assert pipe is not None
            fd = os.dup(pipe.fileno())
            pipe.close()
            os.set_blocking(fd, False)
            self._outputs[fd] = Stream(self._log, stdtype)
            self.also(fd, functools.partial(self._forward, fd))

    def _forward(self, fd: int) -> None:
        try:
            data = os.read(fd, _CHUNK)
        except BlockingIOError:
            return
        if data:
            self._outputs[fd].feed(data)
        else:
            self._end_output(fd)

    def _end_output(self, fd: int) -> None:
        self._selector.unregister(fd)
        self._outputs.pop(fd).end()
        os.close(fd)
