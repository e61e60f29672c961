"""Whether compute nodes reach the master by TCP."""

from __future__ import annotations

from collections.abc import Iterator

from dethpc.doctor.facts import Facts
from dethpc.doctor.finding import Finding, ok, warning


def check(facts: Facts) -> Iterator[Finding]:
    for node in facts.nodes or ():
        if node.problem or not node.address:
            continue
        if node.master:
            yield warning(
                f"pool {node.pool}: {node.name} does not reach {node.address}: {node.master}",
                "learns everything from the files, a little later; searches that wait for an answer wait longer",
                "name an interface that compute nodes reach in master.host, open the port (master.port) in the firewall, "
                "or det master up --slurm",
            )
        else:
            yield ok(f"pool {node.pool}: {node.name} reaches {node.address}")
