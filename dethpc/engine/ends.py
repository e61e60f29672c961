"""Why an attempt ended: the failure taxonomy as a pure function of the evidence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from dethpc.domain.end_report import EndReport
from dethpc.domain.facts import Run
from dethpc.domain.ports import JobRecord, JobState
from dethpc.domain.states import End, Intent
from dethpc.domain.stopping import StopReason

_FROM_SCHEDULER = {
    JobState.PREEMPTED: (End.PREEMPTED, "the scheduler gave its slots to another job"),
    JobState.TIMEOUT: (End.TIMEOUT, "the job reached its time limit"),
    JobState.DEADLINE: (End.TIMEOUT, "the job reached its deadline"),
    JobState.NODE_FAIL: (End.NODE_FAIL, "a node failed"),
    JobState.BOOT_FAIL: (End.NODE_FAIL, "a node could not boot"),
    JobState.OUT_OF_MEMORY: (End.OUT_OF_MEMORY, "the job used more memory than it asked for"),
}
_ASKED: Mapping[str, tuple[End, str]] = {
    StopReason.PREEMPTED: (End.PREEMPTED, "the scheduler asked for its slots"),
    StopReason.TIME_LIMIT: (End.TIMEOUT, "the job came to its time limit"),
    StopReason.NODE_LOST: (End.NODE_FAIL, "a node was lost"),
}
_SETUP_PHASES = ("claim", "unpack", "rendezvous")
MAX_LOST = 5
"""How many runs in a row may end without evidence, or before training began, until the trial is given up."""
MAX_MISSED = 3
"""The same where the nodes did not meet: those that came wait minutes for the others."""


class Verdict(NamedTuple):
    end: End
    reason: str
    exit_code: int | None
    permanent: bool = False  # it would end the same way again
    tries: int = MAX_LOST  # of runs in a row that end without training, this one included


def conclusive(intent: Intent, report: EndReport | None) -> bool:
    """True when the end report alone settles the matter, so that nobody needs to wait for the scheduler's record."""
    if report is None:
        return False
    if report.finished:
        return True
    if report.acked and report.exit_code == 0:
        # Whoever told it that its slots are needed, the scheduler or somebody with scancel, only the scheduler knows.
        return intent is Intent.STOP or report.stop_reason == StopReason.TIME_LIMIT
    # A process that was killed may have met the memory limit, which only the scheduler knows.
    killed = report.signal == 9 or report.exit_code in (None, 137)
    return not report.stop_reason and not killed


def classify(
    run: Run,
    report: EndReport | None,
    record: JobRecord | None,
    *,
    early_exit: str = "",
    requeued: bool = False,
    log_tail: str = "",
    asked: str = "",
) -> Verdict:
    """What the master intended, the end report and the scheduler's record, in this order of trust.

    ``early_exit`` is what user code reported through the Core API. ``asked`` is why the attempt had been asked to stop; it speaks
    where the scheduler has forgotten the job and nobody lived to write a report. ``log_tail`` is the end of the batch script's own
    output, the only evidence when nothing else was written.
    """
    code = None if report is None else report.exit_code
    if code is None and record is not None:
        code = record.exit_code
    if report is not None and report.finished:
        if early_exit.endswith("INVALID_HP"):
            return Verdict(End.INVALID_HP, "the trial reported invalid hyperparameters", code)
        return Verdict(End.COMPLETED, "", 0)
    if run.intent is Intent.KILL:
        return Verdict(End.KILLED, run.intent_reason or "killed", code)
    if early_exit.endswith("INVALID_HP"):
        return Verdict(End.INVALID_HP, "the trial reported invalid hyperparameters", code)

    asked = (report.stop_reason if report is not None else None) or asked
    scheduler = _scheduler_end(record, requeued, asked)
    message = report.message if report is not None else ""
    if report is not None and report.acked and code == 0:
        if run.intent is Intent.STOP:
            return Verdict(End.STOPPED, run.intent_reason, 0)
        if (
            scheduler is None or scheduler[0] is End.OUT_OF_MEMORY
        ):  # some process may have met it, and yet it ended well
            scheduler = _ASKED.get(asked) or (End.STOPPED, f"stopped: {asked or 'asked to'}")
        return Verdict(*scheduler, 0)
    if scheduler is not None:
        return Verdict(*scheduler, code)
    if report is not None:
        if report.phase == "waiting":
            return Verdict(End.WAITING, message or "the master could not be reached", code)
        if report.phase == "launch":
            return Verdict(End.LAUNCH_FAILED, message or f"exit code {code}", code, permanent=True)
        if report.phase in _SETUP_PHASES and asked not in _ASKED:
            tries = MAX_MISSED if report.phase == "rendezvous" else MAX_LOST
            return Verdict(End.LAUNCH_FAILED, message, code, tries=tries)
        # What fails after its slots were asked for had no fair chance; towards a time limit there was time for all it had to do.
        if asked in _ASKED and (asked == StopReason.PREEMPTED or code is None or report.signal in (9, 15)):
            end, said = _ASKED[asked]
            return Verdict(end, message or said, code)
        return Verdict(End.USER_ERROR, message or f"exit code {code}", code)
    if run.intent is Intent.STOP:
        return Verdict(End.STOPPED, run.intent_reason, code)
    if asked in _ASKED:
        return Verdict(*_ASKED[asked], code)
    if run.attempt < 0 and record is not None and record.state is not JobState.COMPLETED:
        return Verdict(
            End.LAUNCH_FAILED, log_tail or f"the job ended ({record.state.value}) before training began", code
        )
    return Verdict(End.LOST, log_tail or "the job is gone and left no report", code)


def _scheduler_end(record: JobRecord | None, requeued: bool, asked: str) -> tuple[End, str] | None:
    if record is not None:
        if record.state in _FROM_SCHEDULER:
            return _FROM_SCHEDULER[record.state]
        if record.preempted:
            return _FROM_SCHEDULER[JobState.PREEMPTED]
        if record.state is JobState.CANCELLED:
            return End.CANCELLED, "the job was cancelled outside dethpc"
    if requeued:
        # A job that is taken off its nodes is told so first; one whose node died is not.
        if asked == StopReason.PREEMPTED:
            return End.PREEMPTED, "the job was requeued"
        return End.NODE_FAIL, "a node failed, and the scheduler requeued the job"
    return None
