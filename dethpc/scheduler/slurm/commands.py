"""Slurm by its commands: sbatch, squeue, sacct, sinfo, scontrol, scancel.

Output is asked for with a delimiter and with times in epoch seconds; ``--json`` needs plugins that some sites lack. A cycle of the
master costs one squeue whatever the number of jobs (and one sacct when jobs have left squeue and the site keeps accounts).
"""

from __future__ import annotations

import math
import os
import re
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from dethpc.domain.ids import element_id, element_of, job_number
from dethpc.domain.ports import (
    LEFT_ITS_ARRAY,
    ArrayRequest,
    JobRecord,
    JobRequest,
    JobState,
    NodeInfo,
    PoolInfo,
    QueuedJob,
)
from dethpc.errors import SchedulerUnavailable, SubmitUncertain
from dethpc.scheduler.slurm import pools as slurm_pools
from dethpc.scheduler.slurm import rows
from dethpc.scheduler.slurm.arrays import together
from dethpc.scheduler.slurm.environment import of_submission, scrub
from dethpc.scheduler.slurm.pools import NodeRow, SlurmPool
from dethpc.scheduler.slurm.refusals import refusal
from dethpc.scheduler.slurm.runner import Completed, Runner, SubprocessRunner
from dethpc.scheduler.slurm.throttle import Throttle

# What asked for is already so, or can no longer be.
_MOOT = re.compile(
    r"invalid job id|already completing or completed|job has already|access/permission denied|no longer pending",
    re.IGNORECASE,
)

# A line of what sbatch answers, maybe with the cluster's name; a site's wrapper around it may greet in others.
_JOB_ID = re.compile(r"^[ \t]*(\d+)(?:;.*)?$", re.MULTILINE | re.ASCII)

# The controller works on the job at this moment (Slurm 23.11 and later say so of ``scontrol update``).
_BUSY = re.compile(r"temporarily unavailable", re.IGNORECASE)

PRINTING = {"SLURM_TIME_FORMAT": "%s", "SLURM_BITSTR_LEN": "0"}
"""Times in epoch seconds, and lists of an array's elements in full."""

BUSY_PAUSES = (0.2, 1.0)
"""Seconds before a command is given again to a controller that was busy with its job."""

_BATCH = 2000  # job ids or names on one command line

_PATIENCE = 20.0
"""Seconds for an answer that somebody waits for, who would take a master that waits longer for one that does not answer."""


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
        return self._sbatch([str(job.script)], job.env, job.run_dir)

    @property
    def largest_array(self) -> int:
        """Of MaxArraySize, and of what SchedulerParameters lets one array have."""
        size = self.config.get("MaxArraySize", "")
        most = re.search(r"\bmax_array_tasks=(\d+)", self.config.get("SchedulerParameters", ""))
        return min([int(size) if size.isdigit() else 0, *([int(most[1])] if most else [])])

    def submit_array(self, array: ArrayRequest) -> list[str]:
        numbers = range(len(array.jobs))
        argv = [f"--array=0-{numbers[-1]}", str(array.script)]
        number = self._sbatch(argv, array.jobs[0].env, array.folder)
        return [element_id(number, index) for index in numbers]

    def _sbatch(self, options: list[str], env: Mapping[str, str], folder: Path) -> str:
        """The number of the job. Raises as ``submit`` does."""
        if self._throttle is not None:
            self._throttle.take()
        environment = of_submission(env, self._environment)
        try:
            done = self._runner.run(
                ["sbatch", "--parsable", *options], env=environment, cwd=folder, timeout=self._timeout
            )
        except TimeoutError as error:
            raise SubmitUncertain(str(error)) from None
        message = _message(done.stderr)
        job_ids = _JOB_ID.findall(done.stdout)
        if done.returncode == 0 and len(job_ids) == 1:
            return str(job_ids[0])
        if done.returncode <= 0:
            raise SubmitUncertain(message or f"sbatch ended with {done.returncode} and said {done.stdout.strip()!r}")
        raise refusal(message or f"sbatch: exit code {done.returncode}")

    def jobs(self) -> dict[str, JobRecord]:
        listed = "".join(f"{name}:0|," for name in rows.JOB_FIELDS) + "Name:0|"
        argv = ["squeue", "--me", "--array", "--states=all", "--noheader", f"--Format={listed}"]
        records = (rows.of_squeue(row) for row in rows.read(self._ask(argv), len(rows.JOB_FIELDS)))
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

    def element(self, number: str) -> str | None:
        shown = rows.element_shown(self._show_lines(number) or (), number)
        if shown or not self.has_accounting:
            return shown
        argv = ["sacct", "--allocations", "--noheader", "--parsable2", "--format=JobIDRaw,JobID", f"--jobs={number}"]
        return rows.element_kept(self._ask(argv), number)

    def find(self, names: Sequence[str]) -> list[JobRecord]:
        found: dict[str, JobRecord] = {}
        if self.has_accounting:
            for start in range(0, len(names), _BATCH):
                some = ",".join(names[start : start + _BATCH])
                found.update(self._accounts(f"--name={some}", "--starttime=now-30days"))
        found.update(self.jobs())
        wanted = set(names)
        named = (record for record in found.values() if record.name in wanted)
        return sorted(named, key=lambda record: (record.submitted_at or 0, job_number(record.job_id)))

    def cancel(self, job_ids: Sequence[str]) -> None:
        for start in range(0, len(job_ids), _BATCH):
            self._tell(["scancel", *together(job_ids[start : start + _BATCH])])

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
        listed = "".join(f"{name}:0|," for name in rows.QUEUE_FIELDS) + "NodeList:0|"
        argv = [
            "squeue",
            f"--partition={partition}",
            "--array",
            "--states=PENDING,RUNNING",
            "--noheader",
            f"--Format={listed}",
        ]
        return [rows.queued(row) for row in rows.read(self._ask(argv, _PATIENCE), len(rows.QUEUE_FIELDS))]

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
        output = self._ask([*argv, f"--format={','.join(rows.ACCOUNT_FIELDS)}", *which])
        for row in rows.read(output, len(rows.ACCOUNT_FIELDS) - 1):
            for record in rows.of_sacct(row):
                before = found.get(record.job_id)
                same = (
                    before is not None and before.name == record.name
                )  # ids are given again after Slurm lost its state
                record.restarts = before.restarts + 1 if before is not None and same else 0
                found[record.job_id] = record
        return found

    def _shown(self, job_ids: Sequence[str]) -> dict[str, JobRecord]:
        """One question for one job, and one for all of many.

        Of an element that was cancelled before it began Slurm keeps nothing but that its array is without it.
        """
        if len(job_ids) == 1:
            found = self._show(job_ids[0])
            if found is not None:
                return {record.job_id: record for record in found if record.job_id == job_ids[0]}
        wanted, arrays, known = set(job_ids), dict[str, str](), dict[str, JobRecord]()
        for record in self._show() or ():
            known[record.job_id] = record
            if element_of(record.job_id) is not None:
                arrays[record.job_id.partition("_")[0]] = record.name
        for job_id in wanted - known.keys():
            if element_of(job_id) is not None and (name := arrays.get(job_id.partition("_")[0])) is not None:
                known[job_id] = JobRecord(job_id, name, JobState.CANCELLED, reason=LEFT_ITS_ARRAY)
        return {job_id: known[job_id] for job_id in wanted & known.keys()}

    def _show(self, *which: str) -> list[JobRecord] | None:
        """None: the array of the job is there, and the job is not."""
        lines = self._show_lines(*which)
        return None if lines is None else [record for line in lines for record in rows.of_scontrol(line)]

    def _show_lines(self, *which: str) -> list[str] | None:
        """As ``_show``, a line for each job, or for all elements of an array that wait."""
        done = self._command(["scontrol", "--oneliner", "show", "job", *which])
        if done.returncode != 0:
            if _MOOT.search(done.stderr):
                return []
            if which and re.search(r"^Job \S+ not found$", done.stdout.strip()):
                return None
            raise SchedulerUnavailable(f"scontrol: {_message(done.stderr) or f'exit code {done.returncode}'}")
        return [line for line in done.stdout.splitlines() if line.startswith("JobId=")]

    def node_rows(self) -> list[NodeRow]:
        listed = "".join(f"{name}:0|," for name in rows.NODE_FIELDS).rstrip(",")
        output = self._ask(["sinfo", "--Node", "--noheader", f"--Format={listed}"], _PATIENCE)
        try:
            return [rows.of_sinfo(row) for row in rows.read(output, len(rows.NODE_FIELDS) - 1)]
        except ValueError as error:
            raise SchedulerUnavailable(f"an answer of sinfo cannot be read: {error}") from None

    def _ask(self, argv: list[str], timeout: float = math.inf) -> str:
        done = self._command(argv, timeout)
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

    def _command(self, argv: list[str], timeout: float = math.inf) -> Completed:
        environment = {**self._environment, **PRINTING}
        try:
            return self._runner.run(argv, env=environment, cwd=None, timeout=min(timeout, self._timeout))
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


def _message(stderr: str) -> str:
    """What a command complained of, without its name in front of each line."""
    lines = (re.sub(r"^\w+: (error|fatal): ", "", line.strip()) for line in stderr.splitlines())
    return "; ".join(dict.fromkeys(line for line in lines if line))
