"""How long Slurm remembers a job that has ended: how a job ended is read there."""

from __future__ import annotations

from collections.abc import Iterator

from dethpc.doctor.facts import Facts, Slurm
from dethpc.doctor.finding import Finding, note, ok, warning


def check(facts: Facts, slurm: Slurm) -> Iterator[Finding]:
    age, poll = slurm.number("MinJobAge"), facts.site.limits.slowest_poll
    if age is None or age == 0 or age >= 2 * poll:
        yield ok(f"MinJobAge {age or 'without end'}{' s' if age else ''}")
    elif slurm.keeps_accounts:
        yield note(
            f"MinJobAge is {age} s, less than two looks of {poll:g} s", "asks sacct about jobs that have left the queue"
        )
    else:
        yield warning(
            f"MinJobAge is {age} s and there is no accounting: a job may be gone between two looks of {poll:g} s",
            "goes by what the job itself has left (end.json); a job that left nothing is tried again, at most five times in a row",
            f"MinJobAge={2 * int(poll)} in slurm.conf, or limits.slowest_poll: {max(1, age // 2)} in the site configuration",
        )
