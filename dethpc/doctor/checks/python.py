"""The Pythons of login and compute nodes."""

from __future__ import annotations

from collections.abc import Iterator

from dethpc.doctor.facts import Facts
from dethpc.doctor.finding import Finding, error, ok

OLDEST = (3, 9)


def check(facts: Facts) -> Iterator[Finding]:
    yield ok(f"Python {facts.login.python[0]}.{facts.login.python[1]} here")
    for node in facts.nodes or ():
        pool = facts.pools.get(node.pool)
        if node.problem or pool is None:
            continue
        numbers = node.python.split(".")
        change = "pools.python, or a pools.prologue that loads a module"
        if not all(part.isdigit() for part in numbers[:2]) or len(numbers) < 2:
            yield error(
                f"pool {node.pool}: {pool.python} does not run on {node.name}: {node.python}",
                "no run starts there",
                change,
            )
        elif (int(numbers[0]), int(numbers[1])) < OLDEST:
            yield error(
                f"pool {node.pool}: {pool.python} on {node.name} is {node.python}; runs need 3.9 or newer",
                "no run starts there",
                change,
            )
        else:
            yield ok(f"pool {node.pool}: {pool.python} on {node.name} is {node.python}")
