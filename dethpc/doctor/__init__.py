"""``det doctor``: examines a site and reports problems, how dethpc handles each, and what could be changed.

``read_slurm``, ``read_login``, ``read_master`` and ``read_nodes`` collect the ``facts``; ``checks`` turns facts into findings.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from types import ModuleType

from dethpc.doctor.checks import FIRST, OF_MACHINES, OF_SLURM
from dethpc.doctor.facts import Facts
from dethpc.doctor.finding import Finding, Level

__all__ = ["Finding", "Level", "examine"]


def examine(facts: Facts) -> Iterator[Finding]:
    """What every check says, in their order."""
    yield from _named(FIRST, FIRST.check(facts))
    if facts.slurm is not None and not facts.slurm.problem:
        for check in OF_SLURM:
            yield from _named(check, check.check(facts, facts.slurm))
    for check in OF_MACHINES:
        yield from _named(check, check.check(facts))


def _named(check: ModuleType, findings: Iterator[Finding]) -> Iterator[Finding]:
    name = check.__name__.rpartition(".")[2]
    return (dataclasses.replace(finding, check=name) for finding in findings)
