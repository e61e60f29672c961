"""Whether this machine lets a master live."""

from __future__ import annotations

from collections.abc import Iterator

from dethpc.doctor.facts import Facts
from dethpc.doctor.finding import Finding, ok, warning

LEAST = 512 << 20


def check(facts: Facts) -> Iterator[Finding]:
    login = facts.login
    lives = True
    dethpc = "det starts another when it is needed; nothing is lost meanwhile"
    change = "det master up --slurm runs it as a job"
    if login.kills_at_logout and login.lingers is not True:
        lives = False
        yield warning(
            "processes end when you log out (KillUserProcesses)", dethpc, f"loginctl enable-linger, or {change}"
        )
    if login.cpu_seconds is not None:
        lives = False
        yield warning(f"a process here may use {login.cpu_seconds} s of CPU (ulimit -t)", dethpc, change)
    if login.memory_limit is not None and login.memory_limit < LEAST:
        lives = False
        yield warning(f"a user's processes here may take {login.memory_limit >> 20} MiB together", dethpc, change)
    if lives:
        yield ok(f"nothing on {login.host} is known to end a master", dethpc)
