"""Whether munge works here, by which Slurm knows the user."""

from __future__ import annotations

from collections.abc import Iterator

from dethpc.doctor.facts import Facts
from dethpc.doctor.finding import Finding, error, ok


def check(facts: Facts) -> Iterator[Finding]:
    if facts.login.munge is None:
        return
    if facts.login.munge:
        yield error(f"munge does not work: {facts.login.munge}", "its Slurm commands fail, too", "start munged")
    else:
        yield ok("munge works")
