"""Compute nodes see DETHPC_HOME and write there."""

from __future__ import annotations

from collections.abc import Iterator

from dethpc.doctor.facts import Facts, Slurm
from dethpc.doctor.finding import Finding, error, note, ok, warning


def check(facts: Facts, slurm: Slurm) -> Iterator[Finding]:
    if facts.nodes is None:
        yield note(
            f"not looked at from a compute node: {facts.login.home}, Python, locks, clocks, the way to the master",
            change="det doctor --check-nodes sends a small job to each pool",
        )
        return
    for node in facts.nodes:
        if node.late:
            yield warning(
                f"pool {node.pool}: {node.problem}",
                "trials wait in the same way",
                "later, --timeout SECONDS, or other pools (--pool)",
            )
        elif node.refused:
            yield error(f"pool {node.pool}: {node.problem}", "trials would be refused, too", "the site configuration")
        elif node.problem:
            yield error(
                f"pool {node.pool}: {node.problem}",
                "trials in this pool would fail in the same way, or wait",
                "put DETHPC_HOME and the Python environment where compute nodes see them",
            )
        elif node.home:
            yield error(
                f"pool {node.pool}: {node.name} cannot write to {facts.login.home}: {node.home}",
                "no trial can report or checkpoint there",
                "set DETHPC_HOME to a folder that compute nodes can write to",
            )
        else:
            yield ok(f"pool {node.pool}: {node.name} sees and writes {facts.login.home}")
