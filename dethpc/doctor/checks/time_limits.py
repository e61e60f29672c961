"""The pools' time limits against the partitions'."""

from __future__ import annotations

from collections.abc import Iterator

from dethpc.doctor.facts import Facts, Slurm
from dethpc.doctor.finding import Finding, error, note, ok, warning

SHORT = 600


def check(facts: Facts, slurm: Slurm) -> Iterator[Finding]:
    for name, pool in facts.pools.items():
        partition = pool.partition or name
        if partition not in slurm.partitions:
            continue
        longest, usual = slurm.limit(partition, "MaxTime"), slurm.limit(partition, "DefaultTime")
        requested = pool.time_limit_seconds
        limit = requested or usual or longest
        chained = "a trial that needs longer checkpoints before the limit and goes on in another job"
        if requested is not None and longest is not None and requested > longest:
            yield error(
                f"pool {name}: time_limit is {_words(requested)}, partition {partition} has MaxTime {_words(longest)}",
                "its jobs would wait for ever (PartitionTimeLimit), or be refused",
                f'time_limit: "{int(longest // 60)}" or less',
            )
        elif limit is None:
            yield ok(f"pool {name}: no time limit")
        elif limit < SHORT:
            yield warning(
                f"pool {name}: jobs end after {_words(limit)}",
                chained + "; much of the time goes into starting",
                "a longer time_limit for the pool",
            )
        elif requested is None and longest is not None and limit < longest:
            yield note(
                f"pool {name}: jobs get the partition's DefaultTime of {_words(limit)}; {_words(longest)} is allowed",
                chained,
                "time_limit in the site configuration",
            )
        else:
            yield ok(f"pool {name}: {_words(limit)}", chained)


def _words(seconds: float) -> str:
    days, rest = divmod(int(seconds), 86400)
    return (
        f"{days}-{rest // 3600:02}:{rest % 3600 // 60:02}:00"
        if days
        else f"{rest // 3600:02}:{rest % 3600 // 60:02}:00"
    )
