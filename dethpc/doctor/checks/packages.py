"""Packages that get into each other's way."""

from __future__ import annotations

from collections.abc import Iterator

from dethpc.doctor.facts import Facts
from dethpc.doctor.finding import Finding, error, ok


def check(facts: Facts) -> Iterator[Finding]:
    packages = facts.login.packages
    if "determined" in packages:
        yield error(
            f"determined {packages['determined']} is installed in this environment, too: both own the name 'determined'",
            "which of the two is imported depends on the order of installation",
            "pip uninstall determined && pip install --force-reinstall --no-deps dethpc; give that client its own",
        )
    else:
        yield ok("nothing else owns the name 'determined'")
