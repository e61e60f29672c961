"""The time between TERM and KILL."""

from __future__ import annotations

from collections.abc import Iterator

from dethpc.doctor.facts import Facts, Slurm
from dethpc.doctor.finding import Finding, ok, warning

SHORT = 10


def check(facts: Facts, slurm: Slurm) -> Iterator[Finding]:
    wait = slurm.number("KillWait")
    if wait is not None and wait < SHORT:
        yield warning(
            f"Slurm kills processes {wait} s after TERM (KillWait)",
            "asks for checkpoints before Slurm's own end (pause, time limit); a killed job may lose the last lines of its log",
            "KillWait=30 in slurm.conf, which is Slurm's default",
        )
    else:
        yield ok(f"KillWait {wait} s")
