"""Checks of Slurm itself: its release, what its commands print, and how many requests and jobs it takes."""

from __future__ import annotations

from collections.abc import Iterator

from dethpc.doctor.facts import Facts, Slurm
from dethpc.doctor.finding import Finding, error, note, ok, warning
from dethpc.doctor.read_slurm import version

SUPPORTED_RELEASES = ((22, 5), (26, 5))
LONG_TIMEOUT = 60
FEW_JOBS = 2000  # jobs of the whole cluster
DEFAULT_WINDOW = 16  # what a pool keeps pending at least where its window is not set


def slurm(facts: Facts) -> Iterator[Finding]:
    """Whether Slurm answers, and whether its release is one that dethpc supports."""
    if facts.slurm is None:
        yield ok("jobs run on this machine; there is no Slurm")
        return
    if facts.slurm.problem:
        yield error(
            f"Slurm does not answer: {facts.slurm.problem}",
            "jobs go on; nothing new starts until it answers",
            "start slurmctld, or see that this machine reaches it",
        )
        return
    text = facts.slurm.config.get("SLURM_VERSION", "")
    release = version(text)
    name = f"Slurm {text or 'of an unknown release'}"
    if release is None or release < SUPPORTED_RELEASES[0]:
        yield warning(f"{name}; the oldest that dethpc is meant for is 22.05", "tries all the same")
    elif release > SUPPORTED_RELEASES[1]:
        yield note(f"{name} is newer than this release of dethpc", "tries all the same", "look for a newer dethpc")
    else:
        yield ok(name)


def banners(facts: Facts, slurm: Slurm) -> Iterator[Finding]:
    """Whether Slurm's commands print lines that are not Slurm's, as a site's wrapper scripts do."""
    if not slurm.banners:
        yield ok("Slurm's commands print nothing but Slurm's own lines")
        return
    by_line: dict[str, list[str]] = {}
    for command, line in slurm.banners.items():
        by_line.setdefault(line, []).append(command)
    for line, commands in by_line.items():
        yield note(
            f"{', '.join(commands)} print{'s' if len(commands) == 1 else ''} lines that are not Slurm's: {line[:120]!r}",
            "reads Slurm's own lines and skips these",
            "let the site's script print only to a terminal: [ -t 1 ]",
        )


def timeouts(facts: Facts, slurm: Slurm) -> Iterator[Finding]:
    """How long Slurm's commands wait for an answer."""
    wait = slurm.number("MessageTimeout") or 10
    dethpc = f"after an unclear answer to sbatch looks for the job for {2 * wait} s before it submits again"
    if wait > LONG_TIMEOUT:
        yield note(f"MessageTimeout is {wait} s", dethpc, "a busy controller is better helped by fewer requests")
    else:
        yield ok(f"MessageTimeout {wait} s", dethpc)


def rate_limit(facts: Facts, slurm: Slurm) -> Iterator[Finding]:
    """Whether Slurm limits the rate of a user's requests."""
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


def job_limits(facts: Facts, slurm: Slurm) -> Iterator[Finding]:
    """How many jobs Slurm holds for all users, and for this user."""
    most, array = slurm.number("MaxJobCount"), slurm.number("MaxArraySize")
    if most is not None and most < FEW_JOBS:
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
        windows = [pool.window or DEFAULT_WINDOW for pool in facts.pools.values() if (pool.qos or "normal") == name]
        if limit.isdigit() and windows and int(limit) < sum(windows):
            yield note(
                f"QOS {name} lets a user have {limit} jobs in Slurm at once",
                "takes a refusal for that reason as 'later' and tries again",
                f"set pools.window so that the pools of this QOS stay below {limit}",
            )


def job_memory(facts: Facts, slurm: Slurm) -> Iterator[Finding]:
    """How long Slurm remembers a job that has ended, from which its exit state is read."""
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


def accounting(facts: Facts, slurm: Slurm) -> Iterator[Finding]:
    """Whether Slurm keeps accounts, from which the end of old jobs is read."""
    if slurm.keeps_accounts and slurm.has_sacct:
        yield ok("slurmdbd keeps accounts")
    else:
        lacking = "sacct is not on PATH" if slurm.keeps_accounts else "Slurm keeps no accounts (no slurmdbd)"
        yield note(
            lacking,
            "learns how jobs ended from what they leave themselves and from squeue, while it lists them",
            "slurmdbd, if the site wants accounts anyway: a job that ended while no master ran is then known for longer",
        )
