"""The user's quota where DETHPC_HOME lies."""

from __future__ import annotations

from collections.abc import Iterator

from dethpc.doctor.facts import Facts
from dethpc.doctor.finding import Finding, ok, warning


def check(facts: Facts) -> Iterator[Finding]:
    if facts.login.quota:
        yield warning(
            f"quota: {facts.login.quota} used",
            "reports of trials go by HTTP alone when files cannot grow; checkpoints fail",
            "make room, or name other checkpoint_storage",
        )
    else:
        yield ok("no quota is nearly used up, as far as quota(1) knows")
