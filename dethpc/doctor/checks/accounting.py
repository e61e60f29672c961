"""Whether Slurm keeps accounts, which say how a job ended long after."""

from __future__ import annotations

from collections.abc import Iterator

from dethpc.doctor.facts import Facts, Slurm
from dethpc.doctor.finding import Finding, note, ok


def check(facts: Facts, slurm: Slurm) -> Iterator[Finding]:
    if slurm.keeps_accounts and slurm.has_sacct:
        yield ok("slurmdbd keeps accounts")
    else:
        lacking = "sacct is not on PATH" if slurm.keeps_accounts else "Slurm keeps no accounts (no slurmdbd)"
        yield note(
            lacking,
            "learns how jobs ended from what they leave themselves and from squeue, while it lists them",
            "slurmdbd, if the site wants accounts anyway: a job that ended while no master ran is then known for longer",
        )
