"""How Slurm finds a job's processes, to signal them and to end them."""

from __future__ import annotations

from collections.abc import Iterator

from dethpc.doctor.facts import Facts, Slurm
from dethpc.doctor.finding import Finding, note, ok, warning


def check(facts: Facts, slurm: Slurm) -> Iterator[Finding]:
    kind = slurm.word("ProctrackType")
    if kind == "cgroup":
        yield ok(
            "ProctrackType cgroup",
            "signals reach its own process on each node, which passes on what training code needs",
        )
    elif kind == "pgid":
        yield warning(
            "ProctrackType pgid: processes with a group of their own escape Slurm",
            "ends the processes that it started itself; what they detached may stay",
            "ProctrackType=proctrack/cgroup",
        )
    else:
        yield note(
            f"ProctrackType {kind}: signals go to all of a job's processes",
            "keeps training code that uses the Core API alive until its checkpoint (docs/stopping.md)",
            "ProctrackType=proctrack/cgroup is what most sites have",
        )
    if slurm.word("JobContainerType") == "tmpfs":
        yield note(
            "JobContainerType tmpfs: each job has a /tmp of its own", "unpacks contexts there; they go with the job"
        )
