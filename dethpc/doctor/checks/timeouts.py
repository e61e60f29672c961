"""How long Slurm's commands wait for an answer."""

from __future__ import annotations

from collections.abc import Iterator

from dethpc.doctor.facts import Facts, Slurm
from dethpc.doctor.finding import Finding, note, ok

LONG = 60


def check(facts: Facts, slurm: Slurm) -> Iterator[Finding]:
    wait = slurm.number("MessageTimeout") or 10
    dethpc = f"after an unclear answer to sbatch looks for the job for {2 * wait} s before it submits again"
    if wait > LONG:
        yield note(f"MessageTimeout is {wait} s", dethpc, "a busy controller is better helped by fewer requests")
    else:
        yield ok(f"MessageTimeout {wait} s", dethpc)
