"""How many jobs Slurm holds, for everybody and for the user."""

from __future__ import annotations

from collections.abc import Iterator

from dethpc.doctor.facts import Facts, Slurm
from dethpc.doctor.finding import Finding, note, ok, warning

FEW = 2000  # jobs of the whole cluster
WINDOW = 16  # what a pool keeps pending at least where its window is not set


def check(facts: Facts, slurm: Slurm) -> Iterator[Finding]:
    most, array = slurm.number("MaxJobCount"), slurm.number("MaxArraySize")
    if most is not None and most < FEW:
        yield warning(
            f"MaxJobCount is {most}: everybody's jobs together, those that ended less than MinJobAge ago included",
            "keeps few jobs in Slurm and the rest in its own queue; waits while Slurm is full",
            "raise MaxJobCount, or set pools.window",
        )
    else:
        yield ok(
            f"MaxJobCount {most}, MaxArraySize {array}",
            "submits trials that are alike as one job array (limits.smallest_array)",
        )
    for name, row in (slurm.qos or {}).items():
        limit = row.get("maxsubmitjobsperuser", "")
        windows = [pool.window or WINDOW for pool in facts.pools.values() if (pool.qos or "normal") == name]
        if limit.isdigit() and windows and int(limit) < sum(windows):
            yield note(
                f"QOS {name} lets a user have {limit} jobs in Slurm at once",
                "takes a refusal for that reason as 'later' and tries again",
                f"set pools.window so that the pools of this QOS stay below {limit}",
            )
