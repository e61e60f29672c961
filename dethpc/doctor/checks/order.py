"""Whether nice can put your waiting jobs in order, which needs priorities of 16 or more."""

from __future__ import annotations

from collections.abc import Iterator

from dethpc.doctor.facts import Facts, Slurm
from dethpc.doctor.finding import Finding, note, ok
from dethpc.engine.queue import LEAST_WINDOW

COPES = (
    f"keeps a few jobs waiting in Slurm instead of {LEAST_WINDOW}, and takes back those that stand before one that should come "
    "first: they come again behind it, and behind what other users have submitted since"
)
CHANGE = "PriorityWeightPartition=1000 (or of QOS) leaves room for nice, and jobs keep their place in Slurm"


def check(facts: Facts, slurm: Slurm) -> Iterator[Finding]:
    kind, weights = slurm.word("PriorityType"), slurm.weights
    if kind == "basic":
        yield ok("PriorityType=priority/basic: nice orders waiting jobs")
        return
    if kind != "multifactor":
        yield note(
            f"PriorityType={slurm.config.get('PriorityType', '(not told)')}: not known here", COPES + ", if need be"
        )
        return
    given = ", ".join(f"{name} {weight}" for name, weight in weights.items() if weight) or "all weights 0"
    if sum(weights.values()) < LEAST_WINDOW:
        yield note(
            f"PriorityType=priority/multifactor with {given}: priorities are near 1, and nice moves nothing below that",
            COPES,
            CHANGE,
        )
        return
    low = [
        (name, least)
        for name, pool in facts.pools.items()
        if (least := slurm.least_priorities.get(pool.partition or name, LEAST_WINDOW)) < LEAST_WINDOW
    ]
    for name, least in low:
        yield note(
            f"pool {name}: a job waits with priority {least}, though the weights are {given}; nice moves nothing below 1",
            COPES,
            CHANGE,
        )
    if not low:
        yield ok(
            f"PriorityType=priority/multifactor with {given}: nice orders waiting jobs as far as their priorities reach"
        )
