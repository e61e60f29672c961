"""Tells Slurm's own lines in a command's output from those of a site's scripts. Pure.

Sites put scripts round Slurm's commands, and plug-ins print as well: lines of others may come before and after an answer, on both
streams, and say anything. So a table is asked for with its header and a delimiter that no text holds; a verdict is one of Slurm's
own sentences, in the place where its commands write it. What is neither is skipped, and an answer without its header is none.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from dethpc.errors import SchedulerUnavailable

FIELD = "\x1f"
"""Ends each field of a table: the separator that ASCII has for units, which no banner, name or path holds."""

_PROGRAM = r"(?:[\w.+/-]*(?:sbatch|squeue|sinfo|sacct(?:mgr)?|scontrol|scancel|srun|salloc)[\w.+-]*)"
# A banner may lack its newline, and stand in front of the first line.
_COMPLAINT = re.compile(
    rf"(?:^|(?<=\s)){_PROGRAM}: (?:error|fatal): (?P<log>.*)|\bslurm_\w+(?: error)?: (?P<perror>.*)"
)
_OPTION = re.compile(rf"(?:^|(?<=\s)){_PROGRAM}: ((?:unrecognized|invalid|ambiguous) option .*|option .*)")
_JOB = re.compile(r"\bJobId=\d+ (?:ArrayJobId|HetJobId|JobName)=.*")
_OF_A_JOB = re.compile(
    r"(?P<before>.+) for job [\d_,\[\]%-]+|(?:Kill job error on job id )?[\d_,\[\]%-]+: (?P<after>.+)"
)


def of_squeue(fields: Sequence[str]) -> str:
    """The option that makes squeue and sinfo print ``table``."""
    return f"--Format={','.join(f'{name}:0{FIELD}' for name in fields)}"


def of_sacct(fields: Sequence[str]) -> list[str]:
    """The options that make sacct and sacctmgr print ``table``."""
    return ["--parsable", f"--delimiter={FIELD}", f"--format={','.join(fields)}"]


def table(output: str, width: int, command: str) -> list[list[str]]:
    """The rows, without their header, of an answer of ``width`` columns. Any field may hold lines and bars.

    Raises SchedulerUnavailable when the header is missing or the last row is cut off: such an answer says nothing.
    """
    fields = output.split(FIELD)
    if len(fields) <= width:
        what = f": {output.strip()[:200]!r}" if output.strip() else " is empty"
        raise SchedulerUnavailable(f"the answer of {command} cannot be read{what}")
    if (len(fields) - 1) % width:
        raise SchedulerUnavailable(f"the answer of {command} is cut off: {output.strip()[-200:]!r}")
    rows = [fields[start : start + width] for start in range(width, len(fields) - 1, width)]
    for row in rows:
        newline, first = row[0][:1], row[0][1:]
        if newline != "\n" or any(character.isspace() for character in first):
            raise SchedulerUnavailable(f"the answer of {command} cannot be read: {row[0].strip()[:200]!r}")
        row[0] = first
    return rows


def settings(output: str) -> dict[str, str]:
    """What ``scontrol show config`` printed, between its first line and the one about the controllers."""
    _, began, rest = output.partition("Configuration data as of ")
    if not began:
        raise SchedulerUnavailable(f"the answer of scontrol show config cannot be read: {output.strip()[:200]!r}")
    lines = (
        line.partition("=") for line in re.split(r"^Slurmctld\(", rest, maxsplit=1, flags=re.MULTILINE)[0].splitlines()
    )
    return {name.strip(): value.strip() for name, equals, value in lines if equals}


def jobs(output: str) -> list[str]:
    """The lines of ``scontrol --oneliner show job`` that describe a job."""
    return [match[0] for line in output.splitlines() if (match := _JOB.search(line))]


def complaints(stderr: str) -> list[str]:
    """What Slurm's commands themselves complained of, in order, without their names in front."""
    messages = []
    for line in stderr.splitlines():
        if match := _COMPLAINT.search(line.strip()):
            messages.append(match["log"] if match["log"] is not None else match["perror"])
        elif match := _OPTION.search(line.strip()):
            messages.append(match[1])
    return messages


def sentences(stderr: str) -> list[str]:
    """As ``complaints``, with those that name a job, which ``scontrol`` prints bare, each without its job."""
    messages = []
    for line in stderr.splitlines():
        texts = complaints(line)
        match = _OF_A_JOB.fullmatch(texts[0] if texts else line.strip())
        if match is not None:
            messages.append(match["before"] or match["after"])
        else:
            messages += texts
    return messages


def message(stderr: str) -> str:
    """For people, on one line: what Slurm complained of; all that was printed where no line is Slurm's."""
    lines = complaints(stderr) or [line.strip() for line in stderr.splitlines()]
    return "; ".join(dict.fromkeys(line for line in lines if line))
