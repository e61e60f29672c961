"""Turns the scheduler's signals to this process into ``stop.json``.

TERM says that the slots will be taken (preemption, or a cancel), USR1 that the time limit is near, INT that somebody
pressed the key; a second INT means at once. ``Term`` passes TERM on to user code that waits for it, where Slurm signals this
process alone; ``AskedSignal`` sends the signal of the user's ``--signal`` when it is due.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from types import FrameType
from typing import Any, Mapping, Optional

from dethpc.domain.attempts.stopping import StopReason, StopRequest
from dethpc.domain.slurm.warning_signal import WarningSignal
from dethpc.exec import slurm
from dethpc.exec.supervision import processes, tee
from dethpc.exec.supervision.tee import Log
from dethpc.rundir.files import create_once
from dethpc.rundir.layout import AttemptDir

_REASONS = {
    signal.SIGTERM: StopReason.PREEMPTED,
    signal.SIGUSR1: StopReason.TIME_LIMIT,
    signal.SIGINT: StopReason.INTERRUPTED,
}


class Signals:
    """Context manager: receives the signals while it is open. ``fileno()`` becomes readable at each, even when a
    child ends."""

    def __init__(self, attempt: AttemptDir, grace: Optional[float], environ: Mapping[str, str]) -> None:
        self._attempt, self._grace, self._environ = attempt, grace, environ
        self._before: dict[int, Any] = {}
        self._interrupts = 0
        self.came = False  # a signal that asks the attempt to stop, or its time is up
        self.term_at: Optional[float] = None  # when the last TERM came, in epoch seconds

    @property
    def at_once(self) -> bool:
        return self._interrupts > 1

    def __enter__(self) -> Signals:
        self._read, self._write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._wakeup = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        for number in _REASONS:
            self._before[number] = signal.signal(number, self._stop)
        self._before[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, lambda *_: None)
        return self

    def __exit__(self, *exc: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._wakeup)
        os.close(self._read)
        os.close(self._write)

    def fileno(self) -> int:
        return self._read

    def drain(self) -> None:
        try:
            while os.read(self._read, 4096):
                pass
        except BlockingIOError:
            pass

    def time_is_up(self) -> None:
        """As if USR1 had come."""
        self._ask(signal.SIGUSR1)

    def _stop(self, number: int, frame: Optional[FrameType]) -> None:
        if number == signal.SIGINT:
            self._interrupts += 1
        if number == signal.SIGTERM:
            self.term_at = time.time()
        self._ask(number)

    def _ask(self, number: int) -> None:
        self.came = True
        if self._attempt.run.closed.exists():
            return  # the master has said already what it wants; a kill leaves no time for a checkpoint
        now = time.time()
        request = StopRequest(_REASONS[signal.Signals(number)], now, self._deadline(number, now))
        try:
            create_once(self._attempt.stop, request.to_json())  # the first request gave the reason
        except OSError as error:
            tee.write_to_standard_error(f"dethpc: the request to stop could not be written: {error}\n")

    def _deadline(self, number: int, now: float) -> Optional[float]:
        """After this the scheduler kills; None: unknown."""
        if number == signal.SIGUSR1:
            return job_end(self._environ)
        return now + self._grace if number == signal.SIGTERM and self._grace else None


def job_end(environ: Mapping[str, str]) -> Optional[float]:
    """When the job's time limit ends it, in epoch seconds, if the scheduler says."""
    try:
        return float(environ.get("DETHPC_DEADLINE") or environ["SLURM_JOB_END_TIME"])
    except (KeyError, ValueError):
        return None


class Term:
    """``script``: the entrypoint is an sbatch script, which stands for the job's and gets what that gets. Another entrypoint is a
    step: a process with a handler of its own gets TERM, unless the Core API tells the training."""

    def __init__(self, attempt: AttemptDir, signals: Signals, script: bool, log: Log) -> None:
        self._attempt, self._signals, self._script, self._log = attempt, signals, script, log
        self._sent = not slurm.job_id()
        self.entrypoint = 0  # the process id of what runs on this node

    def look(self) -> None:
        """Send it when its time has come."""
        if self._sent or self._signals.term_at is None or (self._script and not self._attempt.terminated.exists()):
            return
        alone = slurm.signals_this_process_alone()
        self._sent = alone is not None
        if not alone:
            return
        targets = [self.entrypoint] if self._script else self._listening()
        if targets:
            processes.send(targets, signal.SIGTERM)
            self._log.note("INFO", f"dethpc: TERM passed on to {', '.join(f'process {pid}' for pid in targets)}")

    def _listening(self) -> list[int]:
        if self._attempt.journal.exists():
            return []
        tasks = processes.children(self.entrypoint) if processes.is_shell_of(self.entrypoint) else []
        return [pid for pid in tasks or [self.entrypoint] if processes.catches_term(pid)]


SETTLE_SECONDS = 5.0  # after the start, for a script to set its traps
_OF_RANK = re.compile(r"(?:dethpc|determined)\.launch\.wrap_rank")
_LAUNCHER = re.compile(r"(?:dethpc|determined)\.launch\.\w+")


class AskedSignal:
    """The signal that ``DETHPC_SIGNAL`` in ``environ`` asks for, to the processes that sbatch would send it to. ``script``: the
    entrypoint is an sbatch script, and stands for the job's."""

    def __init__(self, environ: Mapping[str, str], script: bool, rank: int, log: Log) -> None:
        self._script, self._log = script, log
        self.entrypoint = 0  # the process id of what runs on this node
        self._asked: Optional[WarningSignal] = None
        deadline, text = job_end(environ), environ.get("DETHPC_SIGNAL")
        if text and deadline is not None:
            warning = WarningSignal.parse(text)
            self._asked = warning if rank == 0 or not warning.script else None  # the batch script is on the first node
            self._due = max(deadline - warning.seconds, time.time() + SETTLE_SECONDS)

    def look(self) -> None:
        """Send it when it is due."""
        if self._asked is None or time.time() < self._due:
            return
        warning, self._asked = self._asked, None
        if self._script and not warning.script:
            to = self._to_steps(warning.number)
        else:
            targets = [self.entrypoint] if self._script else _tasks(self.entrypoint)
            to = self._to_steps(warning.number) if targets == [] else ", ".join(f"process {pid}" for pid in targets)
            processes.send(targets, warning.number)
        self._log.note("INFO", f"dethpc: signal sent to {to or 'no process'}, as --signal={warning} asks")

    def _to_steps(self, number: int) -> str:
        """The job's steps but the one that this process is in, by Slurm's own way."""
        job, own = slurm.job_id(), slurm.own_step()
        if not job or not own:
            return ""
        try:
            listed = slurm.run("squeue", "--steps", f"--jobs={job}", "--noheader", "--format=%i").split()
            steps = [step for step in listed if step.rpartition(".")[2].isdigit() and step != own]
            if steps:
                slurm.run("scancel", f"--signal={number}", *steps)
        except (OSError, subprocess.SubprocessError) as error:
            self._log.say(
                "WARNING", f"dethpc: the signal that --signal asks for could not be sent to the steps: {error}"
            )
            return ""
        return ", ".join(f"step {step}" for step in steps)


def _tasks(entrypoint: int) -> list[int]:
    """What would be srun's tasks: the ranks that a launcher started, or the entrypoint itself; below the shell that dethpc put
    round its words. Empty where a launcher started the ranks by srun."""
    ranks = [pid for pid in processes.descendants() if _OF_RANK.search(" ".join(processes.arguments(pid)[:4]))]
    ranked = [child for pid in ranks for child in processes.children(pid)]
    if ranked:
        return ranked
    if processes.is_shell_of(entrypoint):
        return processes.children(entrypoint) or [entrypoint]
    return [] if any(map(_LAUNCHER.fullmatch, processes.arguments(entrypoint)[:4])) else [entrypoint]
