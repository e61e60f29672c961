"""Checks of how Slurm orders, preempts, signals, ends and requeues jobs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dethpc.doctor.facts import Facts, Slurm
from dethpc.doctor.finding import Finding, note, ok, warning
from dethpc.domain.slurm import walltime
from dethpc.engine.queueing.queue import LEAST_WINDOW

NICE_LACKING = (
    f"keeps a few jobs waiting in Slurm instead of {LEAST_WINDOW}, and takes back those that stand before one that should come "
    "first: they come again behind it, and behind what other users have submitted since"
)
NICE_CHANGE = "PriorityWeightPartition=1000 (or of QOS) leaves room for nice, and jobs keep their place in Slurm"
ENOUGH_GRACE = 60  # seconds for a checkpoint
SHORT_KILL_WAIT = 10


def order(facts: Facts, slurm: Slurm) -> Iterator[Finding]:
    """Whether nice can order the user's pending jobs, which needs priorities of 16 or more."""
    kind, weights = slurm.word("PriorityType"), slurm.weights
    if kind == "basic":
        yield ok("PriorityType=priority/basic: nice orders waiting jobs")
        return
    if kind != "multifactor":
        yield note(
            f"PriorityType={slurm.config.get('PriorityType', '(not told)')}: not known here",
            NICE_LACKING + ", if need be",
        )
        return
    given = ", ".join(f"{name} {weight}" for name, weight in weights.items() if weight) or "all weights 0"
    if sum(weights.values()) < LEAST_WINDOW:
        yield note(
            f"PriorityType=priority/multifactor with {given}: priorities are near 1, and nice moves nothing below that",
            NICE_LACKING,
            NICE_CHANGE,
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
            NICE_LACKING,
            NICE_CHANGE,
        )
    if not low:
        yield ok(
            f"PriorityType=priority/multifactor with {given}: nice orders waiting jobs as far as their priorities reach"
        )


def preemption(facts: Facts, slurm: Slurm) -> Iterator[Finding]:
    """Whether jobs can be preempted, and how much time they get for a checkpoint."""
    kind = slurm.word("PreemptType")
    if kind in ("", "none"):
        yield ok("no preemption")
        return
    for name, pool in facts.pools.items():
        partition = slurm.partitions.get(pool.partition or name)
        if partition is None:
            continue  # the check of pools says that there is none
        quality = (slurm.qos or {}).get(pool.qos or "", {}) if kind == "qos" else {}
        mode = (quality.get("preemptmode") or partition.get("PreemptMode") or slurm.word("PreemptMode")).upper()
        mode = slurm.word("PreemptMode").upper() if mode == "CLUSTER" else mode
        if kind == "partition_prio" and _tier(partition) >= max(map(_tier, slurm.partitions.values()), default=0):
            mode = "OFF"
        grace = _seconds(quality.get("gracetime") or partition.get("GraceTime") or "0")
        yield from _judge_preemption(name, mode, grace, slurm.number("KillWait") or 30)


def _tier(partition: Mapping[str, str]) -> int:
    return int(partition.get("PriorityTier") or 1)


def _judge_preemption(pool: str, mode: str, grace: int, kill_wait: int) -> Iterator[Finding]:
    modes = {word.strip() for word in mode.split(",")}
    if modes <= {"OFF", "DISABLED", ""}:
        yield ok(f"pool {pool}: jobs are not preempted")
    elif modes & {"SUSPEND", "GANG"}:
        yield warning(
            f"pool {pool}: jobs are suspended (PreemptMode={mode}): they keep their memory and stand still",
            "waits; a trial over several nodes may lose its connections meanwhile and is then started again from its checkpoint",
            "PreemptMode=REQUEUE with a GraceTime for this partition",
        )
    elif grace == 0:
        yield warning(
            f"pool {pool}: a preempted job gets TERM, and KILL {kill_wait} s later (GraceTime=0)",
            "checkpoints if that is time enough; else the trial goes on from its last checkpoint, without counting a restart",
            f"GraceTime={ENOUGH_GRACE} or more for the partition; until then, shorter min_checkpoint_period",
        )
    elif grace < ENOUGH_GRACE:
        yield note(
            f"pool {pool}: a preempted job has {grace} s to checkpoint (PreemptMode={mode})",
            "checkpoints at once when TERM comes, and goes on later",
            f"GraceTime={ENOUGH_GRACE} if checkpoints take longer",
        )
    else:
        yield ok(f"pool {pool}: a preempted job has {grace} s to checkpoint (PreemptMode={mode})")


def _seconds(text: str) -> int:
    """``GraceTime`` of a partition is in seconds, that of a QOS HH:MM:SS."""
    if text.isdigit():
        return int(text)
    return int(walltime.seconds(text) or 0)


def signals(facts: Facts, slurm: Slurm) -> Iterator[Finding]:
    """How Slurm finds a job's processes in order to signal and end them."""
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


def kill_wait(facts: Facts, slurm: Slurm) -> Iterator[Finding]:
    """The seconds between TERM and KILL."""
    wait = slurm.number("KillWait")
    if wait is not None and wait < SHORT_KILL_WAIT:
        yield warning(
            f"Slurm kills processes {wait} s after TERM (KillWait)",
            "asks for checkpoints before Slurm's own end (pause, time limit); a killed job may lose the last lines of its log",
            "KillWait=30 in slurm.conf, which is Slurm's default",
        )
    else:
        yield ok(f"KillWait {wait} s")


def requeue(facts: Facts, slurm: Slurm) -> Iterator[Finding]:
    """Whether Slurm queues a job again after a node failure."""
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
