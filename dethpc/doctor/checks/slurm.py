"""Slurm answers, and its release is one that dethpc knows."""

from __future__ import annotations

from collections.abc import Iterator

from dethpc.doctor.facts import Facts
from dethpc.doctor.finding import Finding, error, note, ok, warning
from dethpc.doctor.read_slurm import version

KNOWN = ((22, 5), (26, 5))


def check(facts: Facts) -> Iterator[Finding]:
    if facts.slurm is None:
        yield ok("jobs run on this machine; there is no Slurm")
        return
    if facts.slurm.problem:
        yield error(
            f"Slurm does not answer: {facts.slurm.problem}",
            "jobs go on; nothing new starts until it answers",
            "start slurmctld, or see that this machine reaches it",
        )
        return
    text = facts.slurm.config.get("SLURM_VERSION", "")
    release = version(text)
    name = f"Slurm {text or 'of an unknown release'}"
    if release is None or release < KNOWN[0]:
        yield warning(f"{name}; the oldest that dethpc is meant for is 22.05", "tries all the same")
    elif release > KNOWN[1]:
        yield note(f"{name} is newer than this release of dethpc", "tries all the same", "look for a newer dethpc")
    else:
        yield ok(name)
