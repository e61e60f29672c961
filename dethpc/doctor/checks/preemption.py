"""Who may take nodes away from a job, and how much time it has then."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dethpc.doctor.facts import Facts, Slurm
from dethpc.doctor.finding import Finding, note, ok, warning
from dethpc.domain import walltime

ENOUGH = 60  # seconds for a checkpoint


def check(facts: Facts, slurm: Slurm) -> Iterator[Finding]:
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
        yield from _judge(name, mode, grace, slurm.number("KillWait") or 30)


def _tier(partition: Mapping[str, str]) -> int:
    return int(partition.get("PriorityTier") or 1)


def _judge(pool: str, mode: str, grace: int, kill_wait: int) -> Iterator[Finding]:
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
            f"GraceTime={ENOUGH} or more for the partition; until then, shorter min_checkpoint_period",
        )
    elif grace < ENOUGH:
        yield note(
            f"pool {pool}: a preempted job has {grace} s to checkpoint (PreemptMode={mode})",
            "checkpoints at once when TERM comes, and goes on later",
            f"GraceTime={ENOUGH} if checkpoints take longer",
        )
    else:
        yield ok(f"pool {pool}: a preempted job has {grace} s to checkpoint (PreemptMode={mode})")


def _seconds(text: str) -> int:
    """``GraceTime`` of a partition is in seconds, that of a QOS HH:MM:SS."""
    if text.isdigit():
        return int(text)
    return int(walltime.seconds(text) or 0)
