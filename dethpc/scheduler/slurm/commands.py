"""Slurm by its commands: sbatch, squeue, sacct, sinfo, scontrol, scancel.

Output is asked for with a delimiter and with times in epoch seconds; ``--json`` needs plugins that some sites lack. A cycle of the
master costs one squeue whatever the number of jobs (and one sacct when jobs have left squeue and the site keeps accounts).
"""

from __future__ import annotations

import contextlib
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
    Prospect,
    QueuedJob,
)
from dethpc.errors import SchedulerError, SchedulerUnavailable, SubmitUncertain
from dethpc.scheduler.slurm import answers, rows, states
from dethpc.scheduler.slurm import pools as slurm_pools
from dethpc.scheduler.slurm.arrays import id_ranges
from dethpc.scheduler.slurm.environment import cluster, of_submission, scrub
from dethpc.scheduler.slurm.pools import NodeRow, SlurmPool
from dethpc.scheduler.slurm.refusals import of_test_only, refusal, refused
from dethpc.scheduler.slurm.runner import Completed, Runner, SubprocessRunner
from dethpc.scheduler.slurm.throttle import Throttle

# How Slurm says that what was requested is already so, or can no longer be.
_MOOT = re.compile(
    r"(?:^|\s)(?:Invalid job id specified|Job/step already completing or completed|Job has already (?:started|finished)"
    r"|Access/permission denied|Job is no longer pending execution)$"
)

# What sbatch answers, maybe with the cluster's name; a site's wrapper may print lines of its own, and begin the line.
_JOB_ID = re.compile(r"^[ \t]*(\d+)(?:;.*)?$", re.MULTILINE | re.ASCII)
_MAYBE_JOB_ID = re.compile(r"(?<![\w.-])(\d+)(?:;[\w.-]+)?$", re.MULTILINE | re.ASCII)

# The controller works on the job at this moment (Slurm 23.11 and later say so of ``scontrol update``).
_BUSY = re.compile(r"(?:^|\s)Resource temporarily unavailable$")

PRINTING = {"SLURM_TIME_FORMAT": "%s", "SLURM_BITSTR_LEN": "0"}
"""Times in epoch seconds, and lists of an array's elements in full."""

BUSY_PAUSES = (0.2, 1.0)
"""Seconds before a command is given again to a controller that was busy with its job."""

_BATCH = 2000  # job ids or names on one command line

_NO_JOBS = re.compile(r"\bNo jobs in the system$", re.MULTILINE)

_UNKNOWN_USER = re.compile(
    r"(?:^|\s)(?:Protocol authentication error|Invalid authentication credential|Authentication credential invalid)$"
)
_NEW_TOKEN = (
    "the token in SLURM_JWT may have expired: export a new one (scontrol token), then det master down; the next det command starts "
    "a master with it. Jobs continue"
)

_NUMBERS = 8  # lines with a number, at most, that are tried as job ids

_FOR_A_PROSPECT = 2.0
"""Seconds for what a job that is not submitted yet would meet: somebody waits who may do without."""

_WOULD_START = re.compile(r"\bJob \d+ to start at (\S+) using ")

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
        # Commands follow SLURM_CLUSTERS by themselves, but for sacct: ids of two clusters may be the same.
        self._sacct = ["sacct", "--allocations"]
        if chosen := cluster(self._environment):
            self._sacct.append(f"--clusters={chosen}")
        self._throttle = throttle
        self._timeout = timeout
        self._runner = runner or SubprocessRunner(self._environment.get("PATH"))
        self._config: dict[str, str] | None = None

    @property
    def identity(self) -> str:
        """By what remembers a cluster's jobs: its controller, and where that keeps them. Many are named ``cluster``."""
        config = self.config
        controller = config.get("SlurmctldHost[0]") or config.get("ControlMachine") or ""
        return f"slurm:{config.get('ClusterName', '')}@{controller.partition('(')[0]}:{config.get('StateSaveLocation', '')}"

    # --- jobs --------------------------------------------------------------------------------------------------------

    def submit(self, job: JobRequest) -> str:
        return self._sbatch([str(job.script)], job.env, job.run_dir)

    def prospect(self, script: Path, env: Mapping[str, str], folder: Path) -> Prospect:
        if self._throttle is not None and not self._throttle.take_now():
            return Prospect()
        environment = {**of_submission(env, self._environment), **PRINTING}
        argv = ["sbatch", "--test-only", str(script)]
        try:
            done = self._runner.run(argv, env=environment, cwd=folder, timeout=_FOR_A_PROSPECT)
        except (TimeoutError, SchedulerUnavailable):
            return Prospect()
        if done.returncode == 0:
            begins = _WOULD_START.findall(done.stderr)
            return Prospect(start=states.epoch(begins[-1]) if begins else None)
        message, for_good = of_test_only(done.stderr) if done.returncode > 0 else ("", False)
        return Prospect(refusal=message) if for_good else Prospect(hindrance=message)

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
        if done.returncode < 0:
            raise SubmitUncertain(f"sbatch was ended by signal {-done.returncode}: {done.stdout.strip()[-200:]!r}")
        job_ids = _JOB_ID.findall(done.stdout)
        if refused(done.stderr):
            raise self._refusal(done.stderr)
        if done.returncode == 0 and len(job_ids) == 1:
            return str(job_ids[0])
        if (job_id := self._of_script(_MAYBE_JOB_ID.findall(done.stdout), options[-1])) is not None:
            return job_id
        if done.returncode == 0:
            raise SubmitUncertain(f"sbatch printed no job id that is this job's: {done.stdout.strip()[-200:]!r}")
        output = done.stderr if done.stderr.strip() else done.stdout
        raise self._refusal(output if output.strip() else f"sbatch: exit code {done.returncode}")

    def _refusal(self, stderr: str) -> SchedulerError:
        error = refusal(stderr)
        return self._unavailable(str(error), stderr) if isinstance(error, SchedulerUnavailable) else error

    def _unavailable(self, message: str, stderr: str) -> SchedulerUnavailable:
        """With what to do where the token by which Slurm knows the user is no good any more."""
        if "SLURM_JWT" in self._environment and any(map(_UNKNOWN_USER.search, answers.complaints(stderr))):
            message += f"; {_NEW_TOKEN}"
        return SchedulerUnavailable(message)

    def _of_script(self, numbers: Sequence[str], script: str) -> str | None:
        """Which of the numbers that sbatch and others printed is that of the job of this script, if one is."""
        for number in dict.fromkeys(reversed(numbers[-_NUMBERS:])):
            with contextlib.suppress(SchedulerUnavailable):
                for line in self._show_lines(number) or []:
                    own = re.search(rf"(?:^| Array)JobId={number} ", line)
                    if own and f" Command={script} " in f"{line} ":
                        return number
        return None

    def jobs(self) -> dict[str, JobRecord]:
        argv = ["squeue", "--me", "--array", "--states=all", answers.of_squeue(rows.JOB_FIELDS)]
        records = (rows.of_squeue(row) for row in self._table(argv, len(rows.JOB_FIELDS)))
        return {record.job_id: record for record in records}

    def records(self, job_ids: Sequence[str]) -> dict[str, JobRecord]:
        """From accounting, and what that does not know from the controller, one by one: a listing may have left them out.

        A site without accounting forgets a job when it leaves squeue (which lists ended ones for MinJobAge).
        """
        records: dict[str, JobRecord] = {}
        if self.has_accounting:
            for start in range(0, len(job_ids), _BATCH):
                records.update(self._accounts(f"--jobs={','.join(job_ids[start : start + _BATCH])}"))
        if missing := [job_id for job_id in job_ids if job_id not in records]:
            records.update(self._shown(missing))
        return records

    def element(self, number: str) -> str | None:
        shown = rows.element_shown(self._show_lines(number) or (), number)
        if shown or not self.has_accounting:
            return shown
        argv = [*self._sacct, *answers.of_sacct(["JobIDRaw", "JobID"]), f"--jobs={number}"]
        return rows.element_kept(self._table(argv, 2), number)

    def find(self, names: Sequence[str]) -> list[JobRecord]:
        records: dict[str, JobRecord] = {}
        if self.has_accounting:
            for start in range(0, len(names), _BATCH):
                some = ",".join(names[start : start + _BATCH])
                records.update(self._accounts(f"--name={some}", "--starttime=now-30days"))
        records.update(self.jobs())
        unique = set(names)
        named = (record for record in records.values() if record.name in unique)
        return sorted(named, key=lambda record: (record.submitted_at or 0, job_number(record.job_id)))

    def cancel(self, job_ids: Sequence[str]) -> None:
        for start in range(0, len(job_ids), _BATCH):
            self._tell(["scancel", *id_ranges(job_ids[start : start + _BATCH])])

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
        which = [f"--partition={partition}", "--array", "--states=PENDING,RUNNING"]
        argv = ["squeue", *which, answers.of_squeue(rows.QUEUE_FIELDS)]
        return [rows.queued(row) for row in self._table(argv, len(rows.QUEUE_FIELDS), _PATIENCE)]

    @property
    def config(self) -> dict[str, str]:
        """Slurm's configuration, asked for once."""
        if self._config is None:
            self._config = answers.settings(self._ask(["scontrol", "show", "config"]))
        return self._config

    @property
    def has_accounting(self) -> bool:
        has_slurmdbd = self.config.get("AccountingStorageType", "").endswith("slurmdbd")
        return has_slurmdbd and shutil.which("sacct", path=self._environment.get("PATH")) is not None

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
        argv = [*self._sacct, "--duplicates", *answers.of_sacct(rows.ACCOUNT_FIELDS), *which]
        records: dict[str, JobRecord] = {}
        for row in self._table(argv, len(rows.ACCOUNT_FIELDS)):
            for record in rows.of_sacct(row):
                before = records.get(record.job_id)
                same = (
                    before is not None and before.name == record.name
                )  # ids are given again after Slurm lost its state
                record.restarts = before.restarts + 1 if before is not None and same else 0
                records[record.job_id] = record
        return records

    def _shown(self, job_ids: Sequence[str]) -> dict[str, JobRecord]:
        """One question for one job, and one for all of many.

        Of an element that was cancelled before it began Slurm keeps nothing but that its array is without it.
        """
        if len(job_ids) == 1:
            shown = self._show(job_ids[0])
            if shown is not None:
                return {record.job_id: record for record in shown if record.job_id == job_ids[0]}
        requested, arrays, records = set(job_ids), dict[str, str](), dict[str, JobRecord]()
        for record in self._show() or ():
            records[record.job_id] = record
            if element_of(record.job_id) is not None:
                arrays[record.job_id.partition("_")[0]] = record.name
        for job_id in requested - records.keys():
            if element_of(job_id) is not None and (name := arrays.get(job_id.partition("_")[0])) is not None:
                records[job_id] = JobRecord(job_id, name, JobState.CANCELLED, reason=LEFT_ITS_ARRAY)
        return {job_id: records[job_id] for job_id in requested & records.keys()}

    def _show(self, *which: str) -> list[JobRecord] | None:
        """None: the array of the job is there, and the job is not."""
        lines = self._show_lines(*which)
        return None if lines is None else [record for line in lines for record in rows.of_scontrol(line)]

    def _show_lines(self, *which: str) -> list[str] | None:
        """As ``_show``, a line for each job, or for all elements of an array that wait."""
        done = self._command(["scontrol", "--oneliner", "show", "job", *which])
        if lines := answers.jobs(done.stdout):
            if done.returncode == 0:
                return lines
        elif any(map(_MOOT.search, answers.sentences(done.stderr))) or re.search(_NO_JOBS, done.stdout):
            return []
        elif which and re.search(r"\bJob \S+ not found$", done.stdout, re.MULTILINE):
            return None
        raise SchedulerUnavailable(f"scontrol: {answers.message(done.stderr) or f'exit code {done.returncode}'}")

    def node_rows(self) -> list[NodeRow]:
        argv = ["sinfo", "--Node", answers.of_squeue(rows.NODE_FIELDS)]
        try:
            return [rows.of_sinfo(row) for row in self._table(argv, len(rows.NODE_FIELDS), _PATIENCE)]
        except ValueError as error:
            raise SchedulerUnavailable(f"an answer of sinfo cannot be read: {error}") from None

    def _table(self, argv: list[str], width: int, timeout: float = math.inf) -> list[list[str]]:
        return answers.table(self._ask(argv, timeout), width, argv[0])

    def _ask(self, argv: list[str], timeout: float = math.inf) -> str:
        done = self._command(argv, timeout)
        if done.returncode != 0:
            message = f"{argv[0]}: {answers.message(done.stderr) or f'exit code {done.returncode}'}"
            raise self._unavailable(message, done.stderr)
        return done.stdout

    def _tell(self, argv: list[str]) -> None:
        """What is told may be told twice, so a controller that is busy with the job at this moment is told again."""
        for pause in (*BUSY_PAUSES, None):
            done = self._command(argv)
            sentences = answers.sentences(done.stderr)
            problems = [sentence for sentence in sentences if not _MOOT.search(sentence)]
            silent = done.returncode > 0 and not done.stderr.strip()
            if done.returncode == 0 or (sentences and not problems) or silent:
                return
            if pause is not None and problems and all(map(_BUSY.search, problems)):
                time.sleep(pause)
                continue
            raise SchedulerUnavailable(
                f"{argv[0]}: {'; '.join(dict.fromkeys(problems)) or answers.message(done.stderr)}"
            )

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
