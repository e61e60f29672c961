"""``det doctor``: examines a site and reports problems, how dethpc handles each, and what could be changed.

``read_slurm``, ``read_login``, ``read_master`` and ``read_nodes`` collect the ``facts``; ``checks`` turns facts into findings.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from dethpc.doctor.checks import FIRST, OF_MACHINES, OF_SLURM, Check, SlurmCheck
from dethpc.doctor.facts import Facts
from dethpc.doctor.finding import Finding, Level

__all__ = ["Finding", "Level", "examine"]


def examine(facts: Facts) -> Iterator[Finding]:
    """The findings of every check, in their order."""
    yield from _named(FIRST, FIRST(facts))
    if facts.slurm is not None and not facts.slurm.problem:
        for of_slurm in OF_SLURM:
            yield from _named(of_slurm, of_slurm(facts, facts.slurm))
    for check in OF_MACHINES:
        yield from _named(check, check(facts))


def _named(check: Check | SlurmCheck, findings: Iterator[Finding]) -> Iterator[Finding]:
    return (dataclasses.replace(finding, check=check.__name__) for finding in findings)
