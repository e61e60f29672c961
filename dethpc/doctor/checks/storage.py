"""Checkpoints can be written where the site configuration puts them."""

from __future__ import annotations

from collections.abc import Iterator

from dethpc.doctor.facts import Facts
from dethpc.doctor.finding import Finding, error, ok

CHANGE = "checkpoint_storage in the site configuration, or the rights of that folder"


def check(facts: Facts) -> Iterator[Finding]:
    login = facts.login
    if not login.storage:
        yield ok("checkpoints go to DETHPC_HOME, unless an experiment says otherwise")
        return
    if login.storage_problem:
        yield error(f"nothing can be written to {login.storage} ({login.storage_problem})", "checkpoints fail", CHANGE)
        return
    looked = [node for node in facts.nodes or () if not node.problem]
    for node in looked:
        if node.storage:
            yield error(
                f"pool {node.pool}: {node.name} does not share {login.storage} with this machine ({node.storage})",
                "checkpoints fail, or are found on that node alone",
                CHANGE,
            )
    if not any(node.storage for node in looked):
        many = f", from {len(looked)} node{'s' if len(looked) > 1 else ''}, too" if looked else ""
        yield ok(f"{login.storage} can be written to{many}")
