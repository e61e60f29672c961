"""Whether Slurm limits how often a user may ask it."""

from __future__ import annotations

from collections.abc import Iterator

from dethpc.doctor.facts import Facts, Slurm
from dethpc.doctor.finding import Finding, note, ok


def check(facts: Facts, slurm: Slurm) -> Iterator[Finding]:
    parameters = dict(word.partition("=")[::2] for word in slurm.config.get("SlurmctldParameters", "").split(","))
    limits = facts.site.limits
    polling = f"one squeue in {limits.fastest_poll:g} to {limits.slowest_poll:g} s, whatever the number of trials"
    if "rl_enable" not in parameters:
        yield ok("no limit on requests", polling)
        return
    refill = int(parameters.get("rl_refill_rate") or 2) / max(1, int(parameters.get("rl_refill_period") or 1))
    bucket = int(parameters.get("rl_bucket_size") or 30)
    limit = f"a user may send {bucket} requests at once and {refill:g} a second (rl_enable)"
    if limits.submit_per_second is None or limits.submit_per_second > refill / 2:
        yield note(
            limit,
            polling + "; a refused submission is tried again later",
            f"limits: {{submit_per_second: {refill / 2:g}, submit_burst: {max(1, bucket // 3)}}} in the site configuration "
            "leaves room for the user's own commands",
        )
    else:
        yield ok(limit, polling)
