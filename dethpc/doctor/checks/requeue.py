"""Whether Slurm queues a job again after a node failure."""

from __future__ import annotations

from collections.abc import Iterator

from dethpc.doctor.facts import Facts, Slurm
from dethpc.doctor.finding import Finding, note, ok, warning


def check(facts: Facts, slurm: Slurm) -> Iterator[Finding]:
    if slurm.config.get("JobRequeue") == "0":
        yield note(
            "JobRequeue is 0: jobs are not requeued unless they ask for it", "asks for it in every script (--requeue)"
        )
    else:
        yield ok("jobs are requeued after a node failure", "goes on from the last checkpoint")
    for name in ("RequeueExit", "RequeueExitHold"):
        codes = slurm.word(name)
        if codes:
            yield warning(
                f"{name} is {codes}: Slurm requeues jobs by their exit code",
                "takes such a start for another attempt of the same run, without counting it as a restart",
                "keep those exit codes out of training code",
            )
