"""The containers that a pool offers start on its nodes."""

from __future__ import annotations

from collections.abc import Iterator

from dethpc.doctor.facts import Facts
from dethpc.doctor.finding import Finding, error, ok


def check(facts: Facts) -> Iterator[Finding]:
    for node in facts.nodes or ():
        if node.problem or node.pool not in facts.pools:
            continue
        if not node.containers:
            yield ok(f"pool {node.pool} starts its runs without a container")
        for runtime, problem in node.containers.items():
            if not problem:
                yield ok(f"pool {node.pool}: {runtime} starts a container on {node.name}")
                continue
            yield error(
                f"pool {node.pool}: {runtime} starts no container on {node.name}: {problem}",
                "no run that has an image starts there",
                f"what is missing on the nodes, or pools.container (docs/containers.md says what {runtime} needs)",
            )
