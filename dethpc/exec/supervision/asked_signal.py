"""Sends the signal of the user's ``--signal`` when it is due, to the processes that sbatch would send it to."""

from __future__ import annotations

import re
import subprocess
import time
from typing import Mapping, Optional

from dethpc.domain.slurm.warning_signal import WarningSignal
from dethpc.exec import slurm
from dethpc.exec.supervision import processes
from dethpc.exec.supervision.signals import job_end
from dethpc.exec.supervision.tee import Log

SETTLE_SECONDS = 5.0  # after the start, for a script to set its traps
_OF_RANK = re.compile(r"(?:dethpc|determined)\.launch\.wrap_rank")
_LAUNCHER = re.compile(r"(?:dethpc|determined)\.launch\.\w+")


class AskedSignal:
    """What ``DETHPC_SIGNAL`` in ``environ`` asks for. ``script``: the entrypoint is an sbatch script, and stands for the job's."""

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
