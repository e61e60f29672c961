"""Meaning of sbatch's refusals: no clear answer, no answer, not at present, or never.

The verdict is one of Slurm's own sentences at one place: the last ``Batch job submission failed:`` line, else sbatch's last error.
Texts of a site's wrapper, a banner or a plug-in are for people and decide nothing.

A site that prepares its maintenance closes partitions, reserves nodes and takes licences or limits away. That is no judgement of
the job: it is submitted again later. What the table does not know is for good.
"""

from __future__ import annotations

import re

from dethpc.errors import SchedulerError, SchedulerUnavailable, SubmitDeferred, SubmitRejected, SubmitUncertain
from dethpc.scheduler.slurm import answers

_FAILED = "Batch job submission failed: "

# How sentences of slurm_strerror, of 22.05 to 26.05, begin; and, in lower case, of the C library.
_MEANINGS: dict[type[SchedulerError], tuple[str, ...]] = {
    # The request may have reached the controller.
    SubmitUncertain: (
        "Socket timed out",
        "Connection timed out",
        "Zero Bytes were transmitted or received",
        "Received zero length message",
        "Received message length < 0",
        "Header lengths are longer than data received",
        "Insane message length",
        "Unexpected message received",
        "Message receive failure",
        "Communication shutdown failure",
        "Communication connection failure",
        "Unable to contact slurm controller (receive failure)",
        "Unable to contact slurm controller (shutdown failure)",
        "Kernel reported delayed socket error",
        "Connection reset by peer",
        "Broken pipe",
        "Interrupted system call",
    ),
    # An answer: the job is not taken at present.
    SubmitDeferred: (
        "Required partition not available",
        "Requested partition configuration not available now",
        "Partition in DOWN state",
        "Required node not available",
        "Requested nodes are busy",
        "Requested reservation is in use",
        "Requested reservation not usable now",
        "Job can not start due to maintenance reservation",
        "Licenses currently unavailable",
        "Licenses are not available",
        "Requested account has breached requested QOS usage threshold",
        "MaxJobCount limit reached",
        "Unable to create job record, try again",
        "Slurm temporarily unable to accept job",
        "Slurm job queue full",
        "Job update not available right now",
        "Rate limit exceeded",
        "System submissions disabled",
        "Requested operation is presently disabled",
        "Switch resources currently not available",
        "I/O error writing script/environment to file",
        "Resource temporarily unavailable",
        "No space left on device",
        "Disk quota exceeded",
    ),
    # No answer, or of a daemon that cannot decide. Nothing was done.
    SchedulerUnavailable: (
        "Unable to contact slurm controller",
        "Connection refused",
        "Connection rejected by handler",
        "No route to host",
        "Network is unreachable",
        "Message send failure",
        "Slurm backup controller in standby mode",
        "Controller is in standby mode",
        "Process is shutting down",
        "Incompatible versions of client and server code",
        "Protocol authentication error",
        "Invalid authentication credential",
        "Authentication credential invalid",
        "Failed to connect to authentication agent",
        "Munge encode failed",
        "Couldn't find the specified plugin name for auth/",
        "Could not establish a configuration source",
        "Unable to process configuration file",
        "Can't find an address, check slurm.conf",
        "Unable to connect to database",
        "Problem talking to the database",
    ),
}

_POLICY = "Job violates accounting/QOS policy"
# The names that Slurm gives to limits of how many jobs there may be, on the line before the verdict.
_COUNT_OF_JOBS = re.compile(r"(?:Assoc|QOS)(?:Max|Grp)(?:Submit)?Jobs?(?:Per\w+?)?(?:Limit)?")


def refusal(stderr: str) -> SchedulerError:
    """The error that sbatch, which failed, means by what it printed on ``stderr``. Its message is for people."""
    return meaning(stderr)(answers.message(stderr))


def meaning(stderr: str) -> type[SchedulerError]:
    """Which of the four it is."""
    complaints = answers.complaints(stderr)
    verdicts = [line.removeprefix(_FAILED) for line in complaints if line.startswith(_FAILED)]
    if verdicts and verdicts[-1].startswith(_POLICY):
        return SubmitDeferred if any(map(_COUNT_OF_JOBS.fullmatch, complaints)) else SubmitRejected
    verdict = (verdicts or complaints or [""])[-1].lower()
    if re.match(r"'[^']*' can't be reached now", verdict):  # a cluster that slurmdbd knows, or did
        return SchedulerUnavailable
    for kind, beginnings in _MEANINGS.items():
        if any(verdict.startswith(beginning.lower()) for beginning in beginnings):
            return kind
    return SubmitRejected


def refused(stderr: str) -> bool:
    """Whether the controller said that it took no job: an exit code may be that of a site's wrapper."""
    return any(line.startswith(_FAILED) for line in answers.complaints(stderr))


_TESTED = "allocation failure: "
# What no time mends. Other sentences are notes, and the submission decides: --test-only calls a node configuration unavailable
# while nodes are drained, too.
_FOR_GOOD = (
    "Invalid account",
    "Invalid partition",
    "Invalid qos",
    "Invalid license specification",
    "Invalid generic resource",
    "Invalid Trackable RESource",
    "Invalid GRES specification",
    "Invalid feature specification",
    "Invalid node name specified",
    "Invalid wckey specification",
    "Invalid burst buffer",
    "Invalid directive found in batch script",
    "Invalid numeric value",
    "Batch script contains DOS line breaks",
    "unrecognized option",
    "invalid option",
    "ambiguous option",
    "option '",
)


def of_test_only(stderr: str) -> tuple[str, bool]:
    """What ``sbatch --test-only``, which failed, complained of last; and whether no time mends it. ("", False): Slurm said
    nothing."""
    failures = [line.partition(_TESTED)[2] for line in stderr.splitlines() if _TESTED in line]
    complaints = answers.complaints(stderr)
    verdict = (failures or complaints or [""])[-1].strip()
    meant = meaning(f"sbatch: error: {_FAILED}{verdict}")
    if not verdict or meant in (SchedulerUnavailable, SubmitUncertain):
        return "", False
    return verdict, meant is SubmitRejected and verdict.lower().startswith(tuple(text.lower() for text in _FOR_GOOD))
