"""``det doctor``: reads a site, says what is wrong, what dethpc will do about it and what somebody could change.

``facts`` is what is known, ``read_slurm``, ``read_login`` and ``read_nodes`` find it out, ``checks`` judges it.
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
