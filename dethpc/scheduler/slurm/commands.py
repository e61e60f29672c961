"""Slurm by its commands: sbatch, squeue, sacct, sinfo, scontrol, scancel.

Output is asked for with a delimiter and with times in epoch seconds; ``--json`` needs plugins that some sites lack. A cycle of the
master costs one squeue whatever the number of jobs (and one sacct when jobs have left squeue and the site keeps accounts).
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence

from dethpc.domain import walltime
from dethpc.domain.ports import JobRecord, JobRequest, JobState, NodeInfo, PoolInfo, QueuedJob
from dethpc.errors import SchedulerUnavailable, SubmitUncertain
from dethpc.scheduler.slurm import pools as slurm_pools
from dethpc.scheduler.slurm import states
from dethpc.scheduler.slurm.environment import of_submission, scrub
from dethpc.scheduler.slurm.hostlist import expand
from dethpc.scheduler.slurm.pools import NodeRow, SlurmPool
from dethpc.scheduler.slurm.refusals import refusal
from dethpc.scheduler.slurm.runner import Completed, Runner, SubprocessRunner
from dethpc.scheduler.slurm.throttle import Throttle

# What asked for is already so, or can no longer be.
_MOOT = re.compile(
    r"invalid job id|already completing or completed|job has already|access/permission denied|no longer pending",
    re.IGNORECASE,
)

# The controller works on the job at this moment (Slurm 23.11 and later say so of ``scontrol update``).
_BUSY = re.compile(r"temporarily unavailable", re.IGNORECASE)

_JOB_FIELDS = (
    "JobID",
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
)
_NODE_FIELDS = (
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
_QUEUE_FIELDS = ("JobID", "UserID", "State", "NumNodes", "PriorityLong", "StartTime")
_ACCOUNT_FIELDS = ("JobIDRaw", "State", "ExitCode", "NodeList", "Submit", "Start", "End", "JobName")
BUSY_PAUSES = (0.2, 1.0)
"""Seconds before a command is given again to a controller that was busy with its job."""

_BATCH = 2000  # job ids or names on one command line


class SlurmCommands:
    """``ports.Scheduler`` by Slurm's commands.

    ``pools``: the site's resource pools; none: each partition is one. ``environment``: what the commands run in (the process's own
    by default), scrubbed of the variables of an enclosing job. ``timeout``: seconds for one command; Slurm itself gives up after
    its MessageTimeout (10 s by default), sometimes several times over. ``runner``: how they are run, as children of this process by
    default.
    """

    kind = "slurm"

    def __init__(
        self,
        pools: Sequence[SlurmPool] = (),
        *,
        environment: Mapping[str, str] | None = None,
        throttle: Throttle | None = None,
        timeout: float = 60,
        runner: Runner | None = None,
    ) -> None:
        self._pools = list(pools)
        self._environment = scrub(os.environ if environment is None else environment)
        self._throttle = throttle
        self._timeout = timeout
        self._runner = runner or SubprocessRunner(self._environment.get("PATH"))
        self._config: dict[str, str] | None = None

    # --- jobs --------------------------------------------------------------------------------------------------------

    def submit(self, job: JobRequest) -> str:
        if self._throttle is not None:
            self._throttle.take()
        environment = of_submission(job.env, self._environment)
        argv = ["sbatch", "--parsable", str(job.script)]
        try:
            done = self._runner.run(argv, env=environment, cwd=job.run_dir, timeout=self._timeout)
        except TimeoutError as error:
            raise SubmitUncertain(str(error)) from None
        message = _message(done.stderr)
        job_id = done.stdout.strip().partition(";")[0]
        if done.returncode == 0 and re.fullmatch(r"\d+", job_id):
            return job_id
        if done.returncode <= 0:
            raise SubmitUncertain(message or f"sbatch ended with {done.returncode} and said {done.stdout.strip()!r}")
        raise refusal(message or f"sbatch: exit code {done.returncode}")

    def jobs(self) -> dict[str, JobRecord]:
        listed = "".join(f"{name}:0|," for name in _JOB_FIELDS) + "Name:0|"
        argv = ["squeue", "--me", "--states=all", "--noheader", f"--Format={listed}"]
        records = (_squeue_record(row) for row in _rows(self._ask(argv), len(_JOB_FIELDS)))
        return {record.job_id: record for record in records}

    def records(self, job_ids: Sequence[str]) -> dict[str, JobRecord]:
        """From accounting, and what that does not know from the controller, one by one: a listing may have left them out.

        A site without accounting forgets a job when it leaves squeue (which lists ended ones for MinJobAge).
        """
        found: dict[str, JobRecord] = {}
        if self.has_accounting:
            for start in range(0, len(job_ids), _BATCH):
                found.update(self._accounts(f"--jobs={','.join(job_ids[start : start + _BATCH])}"))
        if left := [job_id for job_id in job_ids if job_id not in found]:
            found.update(self._shown(left))
        return found

    def find(self, names: Sequence[str]) -> list[JobRecord]:
        found: dict[str, JobRecord] = {}
        if self.has_accounting:
            for start in range(0, len(names), _BATCH):
                some = ",".join(names[start : start + _BATCH])
                found.update(self._accounts(f"--name={some}", "--starttime=now-30days"))
        found.update(self.jobs())
        wanted = set(names)
        named = (record for record in found.values() if record.name in wanted)
        return sorted(named, key=lambda record: (record.submitted_at or 0, int(record.job_id)))

    def cancel(self, job_ids: Sequence[str]) -> None:
        for start in range(0, len(job_ids), _BATCH):
            self._tell(["scancel", *job_ids[start : start + _BATCH]])

    def requeue(self, job_id: str) -> None:
        self._tell(["scontrol", "requeue", job_id])

    def nice(self, values: Mapping[str, int]) -> None:
        """One command for each value; Slurm counts a request for each job all the same."""
        by_value: dict[int, list[str]] = {}
        for job_id, value in values.items():
            by_value.setdefault(value, []).append(job_id)
        for value, job_ids in by_value.items():
            self._tell(["scontrol", "update", f"JobId={','.join(job_ids)}", f"Nice={value}"])

    def start_now(self, job_ids: Sequence[str]) -> None:
        """Slurm holds a requeued job back for as long as its old credential lasts, two minutes by default. Owners need not wait."""
        for start in range(0, len(job_ids), _BATCH):
            self._tell(["scontrol", "update", f"jobid={','.join(job_ids[start : start + _BATCH])}", "starttime=now"])

    # --- the cluster -------------------------------------------------------------------------------------------------

    def pools(self) -> list[PoolInfo]:
        rows = self.node_rows()
        return slurm_pools.describe(self._pools or slurm_pools.discover(rows), rows)

    def nodes(self) -> list[NodeInfo]:
        rows = self.node_rows()
        return slurm_pools.nodes(self._pools or slurm_pools.discover(rows), rows)

    def queue(self, partition: str) -> list[QueuedJob]:
        listed = "".join(f"{name}:0|," for name in _QUEUE_FIELDS) + "NodeList:0|"
        argv = ["squeue", f"--partition={partition}", "--states=PENDING,RUNNING", "--noheader", f"--Format={listed}"]
        return [_queued(row) for row in _rows(self._ask(argv), len(_QUEUE_FIELDS))]

    @property
    def config(self) -> dict[str, str]:
        """Slurm's configuration, asked for once."""
        if self._config is None:
            lines = (line.partition("=") for line in self._ask(["scontrol", "show", "config"]).splitlines())
            self._config = {name.strip(): value.strip() for name, equals, value in lines if equals}
        return self._config

    @property
    def has_accounting(self) -> bool:
        kept = self.config.get("AccountingStorageType", "").endswith("slurmdbd")
        return kept and shutil.which("sacct", path=self._environment.get("PATH")) is not None

    @property
    def settle(self) -> float:
        return 2 * self.message_timeout

    @property
    def message_timeout(self) -> float:
        """Seconds after which Slurm gives an answer up: a job of a lost answer may appear that much later."""
        digits = re.match(r"\d+", self.config.get("MessageTimeout", ""))
        return float(digits[0]) if digits else 10.0

    # --- commands ----------------------------------------------------------------------------------------------------

    def _accounts(self, *which: str) -> dict[str, JobRecord]:
        """Records by job id; a requeued job has one line per start, the last one last."""
        argv = ["sacct", "--allocations", "--duplicates", "--noheader", "--parsable", "--delimiter=|"]
        found: dict[str, JobRecord] = {}
        output = self._ask([*argv, f"--format={','.join(_ACCOUNT_FIELDS)}", *which])
        for row in _rows(output, len(_ACCOUNT_FIELDS) - 1):
            record = _sacct_record(row)
            before = found.get(record.job_id)
            same = before is not None and before.name == record.name  # ids are given again after Slurm lost its state
            record.restarts = before.restarts + 1 if before is not None and same else 0
            found[record.job_id] = record
        return found

    def _shown(self, job_ids: Sequence[str]) -> dict[str, JobRecord]:
        """One question for one job, and one for all of many."""
        which = [job_ids[0]] if len(job_ids) == 1 else []
        argv = ["scontrol", "--oneliner", "show", "job", *which]
        done = self._command(argv)
        if done.returncode != 0:
            if _MOOT.search(done.stderr):
                return {}
            raise SchedulerUnavailable(f"scontrol: {_message(done.stderr) or f'exit code {done.returncode}'}")
        records = (_shown_record(line) for line in done.stdout.splitlines() if line.startswith("JobId="))
        return {record.job_id: record for record in records if record.job_id in job_ids}

    def node_rows(self) -> list[NodeRow]:
        listed = "".join(f"{name}:0|," for name in _NODE_FIELDS).rstrip(",")
        output = self._ask(["sinfo", "--Node", "--noheader", f"--Format={listed}"])
        try:
            return [_node_row(row) for row in _rows(output, len(_NODE_FIELDS) - 1)]
        except ValueError as error:
            raise SchedulerUnavailable(f"an answer of sinfo cannot be read: {error}") from None

    def _ask(self, argv: list[str]) -> str:
        done = self._command(argv)
        if done.returncode != 0:
            raise SchedulerUnavailable(f"{argv[0]}: {_message(done.stderr) or f'exit code {done.returncode}'}")
        return done.stdout

    def _tell(self, argv: list[str]) -> None:
        """What is told may be told twice, so a controller that is busy with the job at this moment is told again."""
        for pause in (*BUSY_PAUSES, None):
            done = self._command(argv)
            problems = [line for line in done.stderr.splitlines() if not _MOOT.search(line)]
            if done.returncode == 0 or not problems:
                return
            if pause is not None and all(_BUSY.search(line) for line in problems):
                time.sleep(pause)
                continue
            raise SchedulerUnavailable(f"{argv[0]}: {_message(os.linesep.join(problems))}")

    def _command(self, argv: list[str]) -> Completed:
        environment = {**self._environment, "SLURM_TIME_FORMAT": "%s"}
        try:
            return self._runner.run(argv, env=environment, cwd=None, timeout=self._timeout)
        except TimeoutError as error:
            raise SchedulerUnavailable(str(error)) from None


def is_configured() -> bool:
    """Slurm's commands are here and belong to a cluster, which may be down; installed and never configured does not count."""
    if not shutil.which("sbatch"):
        return False
    try:
        return bool(SlurmCommands().config)
    except SchedulerUnavailable as error:
        return "configuration source" not in str(error)


def _rows(output: str, fixed: int) -> Iterator[list[str]]:
    """Rows of ``fixed`` fields and one last field, a free text that may itself hold the delimiter or a new line. A delimiter ends
    each row. Raises SchedulerUnavailable for anything else: an answer that is damaged or cut off says nothing.
    """
    begun = ""
    for line in output.splitlines(keepends=True):
        begun += line
        fields = begun.split("|", fixed)
        if len(fields) <= fixed:
            raise SchedulerUnavailable(f"an answer of Slurm cannot be read: {begun.strip()[:200]!r}")
        if (last := fields[-1].rstrip("\n")).endswith("|"):
            yield [*fields[:-1], last.removesuffix("|")]
            begun = ""
    if begun.strip():
        raise SchedulerUnavailable(f"an answer of Slurm is cut off: {begun.strip()[-200:]!r}")


def _squeue_record(row: list[str]) -> JobRecord:
    job_id, word, why, hosts, status, restarts, preempted_at, submitted, started, ended, priority, nice, name = row
    state, pending = states.job_state(word), word == "PENDING"
    start, preempted = states.epoch(started), states.epoch(preempted_at)
    code, signal = (None, None) if state.live else states.exit_status(status)
    return JobRecord(
        job_id=job_id,
        name=name,
        state=state,
        reason=states.reason(why) if pending else "",
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


def _queued(row: list[str]) -> QueuedJob:
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


def _sacct_record(row: list[str]) -> JobRecord:
    job_id, word, status, hosts, submitted, started, ended, name = row
    state = states.job_state(word)
    code, signal = (None, None) if state.live else states.exit_status(status)
    return JobRecord(
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


def _shown_record(line: str) -> JobRecord:
    said = dict(re.findall(r"(?:^| )(\w+)=(\S*)", line))
    state = states.job_state(said.get("JobState", ""))
    code, signal = (None, None) if state.live else states.exit_status(said.get("ExitCode", ""))
    return JobRecord(
        job_id=said["JobId"],
        name=said.get("JobName", ""),
        state=state,
        reason=states.reason(said.get("Reason", "None")) if state is JobState.PENDING else "",
        nodes=expand("" if (hosts := said.get("NodeList", "")) == "(null)" else hosts),
        exit_code=code,
        signal=signal,
        restarts=int(said["Restarts"]) if said.get("Restarts", "").isdigit() else 0,
        preempted=said.get("JobState") == "PREEMPTED",
    )


def _node_row(row: list[str]) -> NodeRow:
    node, partition, word, gres, used, cpu_counts, memory, address, limit, features, size, available, why = row
    allocated, _idle, _other, total = (int(count) for count in cpu_counts.split("/"))
    return NodeRow(
        node=node,
        partition=partition.removesuffix("*"),
        default_partition=partition.endswith("*"),
        state=slurm_pools.node_state(word),
        gpus=slurm_pools.gpus(gres),
        gpus_used=slurm_pools.gpus(used),
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


def _message(stderr: str) -> str:
    """What a command complained of, without its name in front of each line."""
    lines = (re.sub(r"^\w+: (error|fatal): ", "", line.strip()) for line in stderr.splitlines())
    return "; ".join(dict.fromkeys(line for line in lines if line))
