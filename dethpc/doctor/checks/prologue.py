"""The shell lines that a pool's jobs begin with."""

from __future__ import annotations

from collections.abc import Iterator

from dethpc.doctor.facts import Facts
from dethpc.doctor.finding import Finding, error, ok


def check(facts: Facts) -> Iterator[Finding]:
    for node in facts.nodes or ():
        pool = facts.pools.get(node.pool)
        if node.problem or pool is None:
            continue
        if not pool.prologue:
            yield ok(f"pool {node.pool} has no prologue")
        elif node.prologue:
            yield error(
                f"pool {node.pool}: its prologue fails on {node.name}: {node.prologue}",
                "trials start without what it was to set up",
                "pools.prologue in the site file; what it prints is in each trial's log as source slurm",
            )
        else:
            yield ok(f"pool {node.pool}: its prologue of {len(pool.prologue)} lines runs on {node.name}")
