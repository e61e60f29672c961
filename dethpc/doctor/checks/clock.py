"""Whether the clocks of login and compute nodes agree."""

from __future__ import annotations

from collections.abc import Iterator

from dethpc.doctor.facts import Facts
from dethpc.doctor.finding import Finding, error, ok, warning

MUCH = 5.0
TOO_MUCH = 60.0


def check(facts: Facts) -> Iterator[Finding]:
    for node in facts.nodes or ():
        if node.problem:
            continue
        # The probe read its clock between these two moments of this machine's.
        off = max(0.0, node.asked_at - node.clock, node.clock - node.seen_at)
        way = "behind" if node.clock < node.asked_at else "ahead"
        gap = f"pool {node.pool}: the clock of {node.name} is {off:.0f} s or more {way}"
        if off > TOO_MUCH:
            yield error(
                gap,
                "times of metrics and logs are wrong, and a master that moves may take its lease too early",
                "NTP on the nodes",
            )
        elif off > MUCH:
            yield warning(
                gap,
                "shows times as each node has them; asks for checkpoints 60 s before a limit",
                "NTP on the nodes",
            )
        else:
            yield ok(f"pool {node.pool}: the clock of {node.name} agrees")
