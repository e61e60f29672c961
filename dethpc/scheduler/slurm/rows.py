"""Parses the rows that Slurm's commands print about jobs and nodes. Pure; ``answers`` says which rows are Slurm's own.

A job's id is the one that people see: ``57``, or ``57_3`` for an element of a job array, whether it has a number of its own yet
or not.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator

from dethpc.domain.ids import element_id, element_of
from dethpc.domain.ports import JobRecord, JobState, QueuedJob
from dethpc.domain.slurm import walltime
from dethpc.domain.slurm.gres import gpus_of_node
from dethpc.scheduler.slurm import pools as slurm_pools
from dethpc.scheduler.slurm import states
from dethpc.scheduler.slurm.hostlist import expand
from dethpc.scheduler.slurm.pools import NodeRow

JOB_FIELDS = (
    "JobArrayID",
    "State",
    "Reason",
    "NodeList",
    "exit_code",
    "RestartCnt",
    "PreemptTime",
    "SubmitTime",
    "StartTime",
    "EndTime",
    "PriorityLong",
    "Nice",
    "Name",
)
NODE_FIELDS = (
    "NodeList",
    "Partition",
    "StateCompact",
    "Gres",
    "GresUsed",
    "CPUsState",
    "Memory",
    "NodeAddr",
    "Time",
    "Features",
    "Size",
    "Available",
    "Reason",
)
QUEUE_FIELDS = ("JobArrayID", "UserID", "State", "NumNodes", "PriorityLong", "StartTime", "NodeList")
ACCOUNT_FIELDS = ("JobID", "State", "ExitCode", "NodeList", "Submit", "Start", "End", "JobName")


def elements(text: str) -> list[int]:
    """``0-3,7%2`` as Slurm shows which elements of an array wait; of a list that it cut off (``...``) the beginning."""
    indices: list[int] = []
    for part in text.strip("[]").partition("%")[0].rstrip("].").split(","):
        ends = re.fullmatch(r"(\d+)(?:-(\d+)(?::(\d+))?)?", part)
        if ends is None:
            break
        first, last, step = int(ends[1]), int(ends[2] or ends[1]), int(ends[3] or 1)
        indices += range(first, min(last, first + _MOST_ELEMENTS) + 1, max(1, step))
    return indices


_MOST_ELEMENTS = 1 << 22  # of the largest MaxArraySize that Slurm takes


def of_squeue(row: list[str]) -> JobRecord:
    job_id, word, why, hosts, status, restarts, preempted_at, submitted, started, ended, priority, nice, name = row
    state, pending = states.job_state(word), word == "PENDING"
    start, preempted = states.epoch(started), states.epoch(preempted_at)
    code, signal = (None, None) if state.live else states.exit_status(status)
    return JobRecord(
        job_id=job_id,
        name=name,
        state=state,
        reason=states.why(word, why),
        nodes=expand(hosts),
        exit_code=code,
        signal=signal,
        restarts=int(restarts) if restarts.isdigit() else 0,
        preempted=word == "PREEMPTED" or (preempted is not None and (start is None or preempted >= start)),
        preempted_at=preempted,
        submitted_at=states.epoch(submitted),
        started_at=None if pending else start,  # of a pending job it is a guess
        ended_at=None if state.live else states.epoch(ended),
        priority=int(priority) if pending and priority.isdigit() else None,
        nice=int(nice) if pending and nice.lstrip("-").isdigit() else None,
    )


def queued(row: list[str]) -> QueuedJob:
    job_id, user, word, nodes, priority, start, hosts = row
    return QueuedJob(
        job_id=job_id,
        mine=user == str(os.getuid()),
        running=states.job_state(word) is JobState.RUNNING,
        nodes=int(nodes.partition("-")[0]) if nodes[:1].isdigit() else 1,
        priority=int(priority) if priority.isdigit() else 0,
        start=states.epoch(start),
        places=expand(hosts),
    )


def of_sacct(row: list[str]) -> Iterator[JobRecord]:
    """One record, but for the elements of an array that wait: those share a row."""
    shown, word, status, hosts, submitted, started, ended, name = row
    state = states.job_state(word)
    code, signal = (None, None) if state.live else states.exit_status(status)
    array, _, waiting = shown.partition("_[")
    for job_id in [element_id(array, index) for index in elements(waiting)] if waiting else [shown]:
        yield JobRecord(
            job_id=job_id,
            name=name,
            state=state,
            nodes=expand(hosts),
            exit_code=code,
            signal=signal,
            preempted=word.startswith("PREEMPTED"),
            submitted_at=states.epoch(submitted),
            started_at=states.epoch(started),
            ended_at=None if state.live else states.epoch(ended),
        )


def of_scontrol(line: str) -> Iterator[JobRecord]:
    """As ``of_sacct``, of one job of ``scontrol --oneliner show job``."""
    fields = _fields(line)
    state = states.job_state(fields.get("JobState", ""))
    code, signal = (None, None) if state.live else states.exit_status(fields.get("ExitCode", ""))
    array, indices = fields.get("ArrayJobId", ""), elements(fields.get("ArrayTaskId", ""))
    for job_id in [element_id(array, index) for index in indices] if array else [fields["JobId"]]:
        yield JobRecord(
            job_id=job_id,
            name=fields.get("JobName", ""),
            state=state,
            reason=states.why(fields.get("JobState", ""), fields.get("Reason", "None")),
            nodes=expand("" if (hosts := fields.get("NodeList", "")) == "(null)" else hosts),
            exit_code=code,
            signal=signal,
            restarts=int(fields["Restarts"]) if fields.get("Restarts", "").isdigit() else 0,
            preempted=fields.get("JobState") == "PREEMPTED",
        )


def element_shown(lines: Iterable[str], number: str) -> str | None:
    """The id of the element of an array that has the number for its own, of those that scontrol shows; those that wait share it."""
    for fields in map(_fields, lines):
        indices = elements(fields.get("ArrayTaskId", ""))
        if fields.get("JobId") == number and len(indices) == 1:
            return element_id(fields["ArrayJobId"], indices[0])
    return None


def element_kept(records: Iterable[list[str]], number: str) -> str | None:
    """The same of what sacct says: JobIDRaw and JobID of each job."""
    job_id = dict(records).get(number, "")
    return job_id if element_of(job_id) is not None else None


def _fields(line: str) -> dict[str, str]:
    """Of a line of ``scontrol --oneliner show job``."""
    return dict(re.findall(r"(?:^| )(\w+)=(\S*)", line))


def of_sinfo(row: list[str]) -> NodeRow:
    node, partition, word, gres, used, cpu_counts, memory, address, limit, features, size, available, why = row
    allocated, _idle, _other, total = (int(count) for count in cpu_counts.split("/"))
    return NodeRow(
        node=node,
        partition=partition.removesuffix("*"),
        default_partition=partition.endswith("*"),
        state=slurm_pools.node_state(word),
        gpus=gpus_of_node(gres),
        gpus_used=gpus_of_node(used),
        cpus=total,
        cpus_used=allocated,
        memory_mb=int(memory) if memory.isdigit() else 0,
        address=address,
        max_time=walltime.seconds(limit),
        features=frozenset() if features == "(null)" else frozenset(features.split(",")),
        max_nodes=states.largest(size),
        available=available,
        reason="" if why == "none" else why,
    )
