"""Maps the job states of Slurm's various commands to dethpc's. Pure."""

from __future__ import annotations

from dethpc.domain.ports import SUSPENDED, JobState

_STATES = {
    **{state.value: state for state in JobState},
    "CONFIGURING": JobState.PENDING,  # its nodes are booting
    "REQUEUED": JobState.PENDING,
    "REQUEUE_FED": JobState.PENDING,
    "REQUEUE_HOLD": JobState.PENDING,
    "RESV_DEL_HOLD": JobState.PENDING,
    "SPECIAL_EXIT": JobState.PENDING,
    "SUSPENDED": JobState.RUNNING,
    "STOPPED": JobState.RUNNING,  # by scancel --signal=STOP
    "REVOKED": JobState.CANCELLED,
    "LAUNCH_FAILED": JobState.BOOT_FAIL,
    "RECONFIG_FAIL": JobState.BOOT_FAIL,
}


def job_state(word: str) -> JobState:
    """The state for a word such as ``RUNNING``, ``CANCELLED by 1000``, ``CANCELLED+`` or ``PENDING,COMPLETING``.

    A word of a later Slurm that is not known here counts as RUNNING: nothing is concluded from it.
    """
    parts = word.upper().replace(",", " ").split() or [""]
    if "COMPLETING" in parts:
        return JobState.COMPLETING
    return _STATES.get(parts[0].rstrip("+"), JobState.RUNNING)


def exit_status(text: str) -> tuple[int | None, int | None]:
    """(exit code, signal) of ``3:0``, ``0:15`` or a raw wait status such as ``768``; None for what does not apply."""
    code, colon, signal = text.strip().partition(":")
    if not code.isdigit():
        return None, None
    if colon:
        died = int(signal) if signal.isdigit() else 0
        return (None, died) if died else (int(code), None)
    status = int(code)
    died = status & 0x7F
    return (None, died) if died else (status >> 8, None)


def epoch(text: str) -> float | None:
    """A time printed under SLURM_TIME_FORMAT=%s; None for ``N/A``, ``NONE``, ``Unknown`` and the like."""
    return float(text) if text.isdigit() and text != "0" else None


def largest(size: str) -> int | None:
    """The most nodes of ``1-4``, ``4`` or ``1-infinite``; None: no limit."""
    last = size.rpartition("-")[2]
    return int(last) if last.isdigit() else None


def reason(word: str) -> str:
    """Why a job is pending, without Slurm's ways of saying nothing, and without blanks, as most of its commands spell it."""
    return "" if word in ("None", "N/A", "(null)") else word.replace(" ", "_")


def why(word: str, pending_because: str) -> str:
    """The reason of a job in the state of this word: why it is pending, or that it is suspended."""
    parts = word.upper().replace(",", " ").split() or [""]
    if job_state(word) is JobState.PENDING:
        return reason(pending_because)
    return SUSPENDED if parts[0] in ("SUSPENDED", "STOPPED") and job_state(word) is JobState.RUNNING else ""
