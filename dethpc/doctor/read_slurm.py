"""Reads the facts of Slurm. Parsers are separate from the commands, so that tests can parse the output of other sites."""

from __future__ import annotations

import getpass
import os
import re
import shutil
import subprocess
from collections.abc import Mapping

from dethpc.doctor.facts import Association, Slurm
from dethpc.errors import SchedulerUnavailable
from dethpc.scheduler.slurm.commands import SlurmCommands
from dethpc.scheduler.slurm.environment import scrub


def read_slurm(scheduler: SlurmCommands) -> Slurm:
    try:
        config = scheduler.config
        rows = scheduler.node_rows()
    except SchedulerUnavailable as error:
        return Slurm(problem=str(error))
    accounts = config.get("AccountingStorageType", "").endswith("slurmdbd")
    user = getpass.getuser()
    who = f"user={user}"
    qos = _ask("sacctmgr", "--parsable2", "--noheader", "show", "qos", f"format={','.join(_QOS)}") if accounts else None
    links = _ask("sacctmgr", "--parsable2", "--noheader", "show", "assoc", who, "format=account,partition,qos")
    return Slurm(
        config=config,
        partitions=named(_ask("scontrol", "--oneliner", "show", "partition") or "", "PartitionName"),
        nodes=rows,
        reservations=tuple(named(_ask("scontrol", "--oneliner", "show", "reservation") or "", "ReservationName")),
        associations=associations(links) if accounts and links is not None else None,
        qos=None if qos is None else qualities(qos),
        has_sacct=shutil.which("sacct") is not None,
        least_priorities=least_priorities(_ask(*_WAITING) or ""),
        banners={name: line for name in _COMMANDS if (line := banner(_spoken(name, "--version")))},
    )


_COMMANDS = ("sbatch", "srun", "squeue", "sinfo", "scontrol", "scancel", "sacct")
_WAITING = ("squeue", "--noheader", "--states=PENDING", "--Format=PriorityLong:0|,Nice:0|,Partition:0|")
_QOS = ("name", "gracetime", "preemptmode", "maxwall", "maxsubmitjobsperuser")


def named(output: str, key: str) -> dict[str, dict[str, str]]:
    """``Key=name Field=value ...`` a line, as ``scontrol --oneliner`` prints it, by name."""
    records = {}
    for line in output.splitlines():
        fields = dict(word.partition("=")[::2] for word in line.split() if "=" in word)
        if line.startswith(f"{key}="):
            records[fields[key]] = fields
    return records


def associations(output: str) -> tuple[Association, ...]:
    rows = (line.split("|") for line in output.splitlines() if line.count("|") == 2)
    return tuple(
        Association(account, tuple(name for name in qos.split(",") if name), partition)
        for account, partition, qos in rows
    )


def qualities(output: str) -> dict[str, dict[str, str]]:
    rows = (line.split("|") for line in output.splitlines() if line.count("|") == len(_QOS) - 1)
    return {row[0]: dict(zip(_QOS, row)) for row in rows}


def least_priorities(output: str) -> dict[str, int]:
    """By partition, the least priority of the jobs that wait there, leaving out those that are held or step back."""
    least: dict[str, int] = {}
    for line in output.splitlines():
        priority, nice, partitions = line.split("|")[:3] if line.count("|") >= 3 else ("", "", "")
        if priority.isdigit() and int(priority) and nice == "0":
            for name in partitions.split(","):
                least[name] = min(int(priority), least.get(name, int(priority)))
    return least


def banner(output: str) -> str:
    """The first line of what a command printed for ``--version`` that is not Slurm's; "" when there is none."""
    return next((line for line in map(str.strip, output.splitlines()) if line and not _RELEASE.fullmatch(line)), "")


_RELEASE = re.compile(r"slurm\S* \d[\w.-]*")


def version(text: str) -> tuple[int, int] | None:
    """``22.05.8-1`` is (22, 5)."""
    match = re.match(r"(\d+)\.(\d+)", text)
    return (int(match[1]), int(match[2])) if match else None


def _ask(*argv: str) -> str | None:
    """A command's output; None when it fails, which is a fact as well."""
    done = _run(*argv)
    return done.stdout if done is not None and done.returncode == 0 else None


def _spoken(*argv: str) -> str:
    """All that a command printed, on both streams."""
    done = _run(*argv)
    return "" if done is None else f"{done.stdout}\n{done.stderr}"


def _run(*argv: str) -> subprocess.CompletedProcess[str] | None:
    try:
        return subprocess.run(
            argv,
            env=environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=60,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None


def environment() -> Mapping[str, str]:
    return scrub(os.environ)
