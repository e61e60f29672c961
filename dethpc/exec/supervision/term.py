"""Passes TERM on to user code that waits for it, where Slurm signals this process alone."""

from __future__ import annotations

import signal

from dethpc.exec import slurm
from dethpc.exec.supervision import processes
from dethpc.exec.supervision.signals import Signals
from dethpc.exec.supervision.tee import Log
from dethpc.rundir.layout import AttemptDir


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
