"""Why an attempt ended: the failure taxonomy as a pure function of the evidence."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from dethpc.domain.attempts.end_report import EndReport, killed_by, signal_of
from dethpc.domain.attempts.stopping import StopReason
from dethpc.domain.facts import Run
from dethpc.domain.ports import JobRecord, JobState
from dethpc.domain.reports import STORAGE_AWAY, WOULD_FAIL_AGAIN
from dethpc.domain.states import End, Intent
from dethpc.engine.events.run_directory import AttemptEnded

_FROM_SCHEDULER = {
    JobState.PREEMPTED: (End.PREEMPTED, "the scheduler gave its slots to another job"),
    JobState.TIMEOUT: (End.TIMEOUT, "the job reached its time limit"),
    JobState.DEADLINE: (End.TIMEOUT, "the job reached its deadline"),
    JobState.NODE_FAIL: (End.NODE_FAIL, "a node failed"),
    JobState.BOOT_FAIL: (End.NODE_FAIL, "a node could not boot"),
    JobState.OUT_OF_MEMORY: (End.OUT_OF_MEMORY, "the job used more memory than it asked for"),
}
_STOPS: Mapping[str, tuple[End, str]] = {
    StopReason.PREEMPTED: (End.PREEMPTED, "the scheduler asked for its slots"),
    StopReason.TIME_LIMIT: (End.TIMEOUT, "the job reached its time limit"),
    StopReason.NODE_LOST: (End.NODE_FAIL, "a node was lost"),
}
CHECKPOINT_DAMAGED, SOURCE_DAMAGED = "CHECKPOINT_DAMAGED: ", "SOURCE_CHECKPOINT_DAMAGED: "
"""How the words begin that a trial keeps as its ``early_exit`` when what its attempt went on from fails its checks."""

NO_SPACE = "No space left on the file system of "
"""How ``AttemptEnded.log_tail`` begins where the run's directory has no room."""

_UNWRITTEN = "its end report could not be written"
_SETUP_PHASES = ("claim", "unpack", "rendezvous")
MAX_LOST = 5
"""How many runs in a row may end without evidence, or before training began, before the trial is given up."""
MAX_MISSED = 3
"""The same for nodes that did not meet: those that joined wait minutes for the others."""


class Verdict(NamedTuple):
    end: End
    reason: str
    exit_code: int | None
    permanent: bool = False  # it would end the same way again
    tries: int = MAX_LOST  # of runs in a row that end without training, this one included
    at: float = 0.0  # when it ended; ``classify`` leaves it open


def conclusive(run: Run, report: EndReport | None) -> bool:
    """True when the end report alone settles the matter, so that nobody needs to wait for the scheduler's record."""
    if report is None:
        return False
    if report.finished:
        return not _may_be_cut_short(run, report)
    if report.acked and report.exit_code == 0:
        # Whoever told it that its slots are needed, the scheduler or somebody with scancel, only the scheduler knows.
        return run.intent is Intent.STOP or report.stop_reason == StopReason.TIME_LIMIT
    # A process that was killed may have met the memory limit, and one that TERM ended may have lost its srun, which only the
    # scheduler knows.
    killed = report.signal in (signal.SIGKILL, signal.SIGTERM) or report.exit_code in (None, 137)
    return not report.stop_reason and not killed


def _may_be_cut_short(run: Run, report: EndReport) -> bool:
    """A task without a trial saves nothing and reports nothing. Where its processes got TERM, exit code 0 may be that of a handler,
    or of a shell whose last command alone was ended, and which had gone on to the next."""
    return run.experiment_id is None and report.stop_reason in _STOPS


def ended_at(begun: float, report: EndReport | None, record: JobRecord | None, now: float) -> float:
    """When what had ``begun`` by then ended: as its own node says, else the scheduler, else ``now``, when the master learns of it.
    That may be much later, where no master ran. Their clocks may differ: nothing ends after now, nor before it began."""
    by_node = None if report is None else report.at
    by_scheduler = None if record is None else record.ended_at
    at = next((at for at in (by_node, by_scheduler) if at is not None), now)
    return max(begun, min(at, now))


@dataclass(frozen=True)
class Evidence:
    """All that is known of an attempt's end. ``report`` is empty where nobody lived to write one, and ``reported`` False then."""

    run: Run
    report: EndReport
    reported: bool
    record: JobRecord | None
    early_exit: str
    log_tail: str
    stop_reason: str  # why the attempt had been asked to stop
    scheduler: tuple[End, str] | None  # what the scheduler's word alone amounts to
    code: int | None

    @property
    def clean(self) -> bool:
        """It left because it was asked to."""
        return self.report.acked and self.code == 0

    @property
    def cut_short(self) -> bool:
        """What fails after its slots were asked for had no fair chance; towards a time limit there was time for all of its work."""
        killed = self.code is None or self.report.signal in (9, 15)
        return self.stop_reason in _STOPS and (self.stop_reason == StopReason.PREEMPTED or killed)

    @property
    def disk_full(self) -> bool:
        return self.log_tail.startswith(NO_SPACE)

    @property
    def code_of_job(self) -> int | None:
        """The exit code of a job whose attempt had started, as a shell states it."""
        if self.run.attempt < 0 or self.record is None:
            return None
        return 128 + self.record.signal if self.record.signal else self.record.exit_code

    @property
    def launcher_killed(self) -> bool:
        """Where srun is gone, Slurm ends its tasks by TERM, which says nothing of them; some live to report that. They take it for
        a preemption, which the scheduler would know of."""
        code, term = self.code_of_job, self.stop_reason == StopReason.PREEMPTED
        if self.reported:
            by_term = self.report.signal == signal.SIGTERM and (term or not self.stop_reason)
        else:
            by_term = term and self.run.intent is not Intent.STOP
        return by_term and code is not None and signal_of(code) == signal.SIGKILL

    @property
    def finished(self) -> bool:
        """It did all that it had to do."""
        ended_by_scheduler = self.scheduler is not None and self.scheduler[0] is not End.OUT_OF_MEMORY
        return self.report.finished and not (ended_by_scheduler and _may_be_cut_short(self.run, self.report))


class Rule(NamedTuple):
    """One line of the taxonomy: it speaks where it ``applies`` and no rule before it does."""

    name: str
    applies: Callable[[Evidence], bool]
    verdict: Callable[[Evidence], Verdict]


RULES = (
    Rule(
        "invalid hyperparameters",
        lambda e: e.early_exit.endswith("INVALID_HP") and (e.report.finished or e.run.intent is not Intent.KILL),
        lambda e: Verdict(End.INVALID_HP, "the trial reported invalid hyperparameters", e.code),
    ),
    Rule("finished", lambda e: e.finished, lambda e: Verdict(End.COMPLETED, "", 0)),
    Rule(
        "killed by the master",
        lambda e: e.run.intent is Intent.KILL,
        lambda e: Verdict(End.KILLED, e.run.intent_reason or "killed", e.code),
    ),
    Rule(
        "stopped by the master",
        lambda e: e.clean and e.run.intent is Intent.STOP,
        lambda e: Verdict(End.STOPPED, e.run.intent_reason, 0),
    ),
    Rule(
        # Some process may have met the memory limit, and yet the attempt ended well.
        "the scheduler's word",
        lambda e: e.scheduler is not None and not (e.clean and e.scheduler[0] is End.OUT_OF_MEMORY),
        lambda e: Verdict(*(e.scheduler or (End.LOST, "")), e.code),
    ),
    Rule(
        "left when asked", lambda e: e.clean and e.stop_reason in _STOPS, lambda e: Verdict(*_STOPS[e.stop_reason], 0)
    ),
    Rule(
        "left for a reason of its own",
        lambda e: e.clean,
        lambda e: Verdict(End.STOPPED, f"stopped: {e.stop_reason or 'asked to'}", 0),
    ),
    Rule(
        "no master",
        lambda e: e.report.phase == "waiting",
        lambda e: Verdict(End.WAITING, e.report.message or "the master could not be reached", e.code),
    ),
    Rule(
        "its storage was away before training",
        lambda e: e.report.phase == "storage" and e.stop_reason not in _STOPS,
        lambda e: Verdict(End.STORAGE_AWAY, e.report.message, e.code),
    ),
    Rule(
        "the launcher refused",
        lambda e: e.report.phase == "launch",
        lambda e: Verdict(End.LAUNCH_FAILED, e.report.message or f"exit code {e.code}", e.code, permanent=True),
    ),
    Rule(
        "the nodes did not meet",
        lambda e: e.report.phase == "rendezvous" and e.stop_reason not in _STOPS,
        lambda e: Verdict(End.LAUNCH_FAILED, e.report.message, e.code, tries=MAX_MISSED),
    ),
    Rule(
        "failed before training",
        lambda e: e.report.phase in _SETUP_PHASES and e.stop_reason not in _STOPS,
        lambda e: Verdict(End.LAUNCH_FAILED, e.report.message, e.code),
    ),
    Rule(
        "its own checkpoint is damaged",
        lambda e: e.reported and e.early_exit.startswith(CHECKPOINT_DAMAGED),
        lambda e: Verdict(End.DAMAGED_CHECKPOINT, e.early_exit[len(CHECKPOINT_DAMAGED) :], e.code),
    ),
    Rule(
        # With other weights than its configuration names it would be another trial.
        "the checkpoint of another trial is damaged",
        lambda e: e.reported and e.early_exit.startswith(SOURCE_DAMAGED),
        lambda e: Verdict(End.DAMAGED_CHECKPOINT, e.early_exit[len(SOURCE_DAMAGED) :], e.code, permanent=True),
    ),
    Rule(
        "its launcher was killed",
        lambda e: e.launcher_killed,
        lambda e: Verdict(End.LOST, _without_report(e), e.code_of_job),
    ),
    Rule(
        "cut short",
        lambda e: e.reported and e.cut_short,
        lambda e: Verdict(_STOPS[e.stop_reason][0], e.report.message or _STOPS[e.stop_reason][1], e.code),
    ),
    Rule(
        "its storage is away",
        lambda e: e.early_exit.startswith(STORAGE_AWAY),
        lambda e: Verdict(End.STORAGE_AWAY, e.early_exit[len(STORAGE_AWAY) :], e.code),
    ),
    Rule(
        "would fail again",
        lambda e: e.reported and e.early_exit.startswith(WOULD_FAIL_AGAIN),
        lambda e: Verdict(
            End.USER_ERROR, f"{_failure(e)} (it would fail again, so it was not restarted)", e.code, permanent=True
        ),
    ),
    Rule(
        "failed by itself",
        lambda e: e.reported,
        lambda e: Verdict(End.USER_ERROR, _failure(e), e.code),
    ),
    Rule(
        "stopped without a report",
        lambda e: e.run.intent is Intent.STOP,
        lambda e: Verdict(End.STOPPED, e.run.intent_reason, e.code),
    ),
    Rule("gone when asked", lambda e: e.stop_reason in _STOPS, lambda e: Verdict(*_STOPS[e.stop_reason], e.code)),
    Rule(
        "never started",
        lambda e: e.run.attempt < 0 and e.record is not None and e.record.state is not JobState.COMPLETED,
        lambda e: Verdict(End.LAUNCH_FAILED, e.log_tail or _before_training(e.record), e.code),
    ),
    Rule(
        "finished without a report",
        lambda e: e.run.experiment_id is None and e.code_of_job == 0,
        lambda e: Verdict(End.COMPLETED, f"{_UNWRITTEN}: {e.log_tail}" if e.disk_full else "", 0),
    ),
    Rule(
        "no evidence",
        lambda e: True,
        lambda e: Verdict(End.LOST, _without_report(e), e.code),
    ),
)
"""In the order of trust: what the training said, what the master intended, what the scheduler says, what the end report tells."""


def rule_for(run: Run, event: AttemptEnded, early_exit: str = "") -> tuple[Rule, Evidence]:
    """The first rule that applies, and what it applies to. Arguments as those of ``classify``."""
    report, record = event.report or EndReport(), event.record
    code = report.exit_code if report.exit_code is not None or record is None else record.exit_code
    # Where the scheduler has forgotten the job and nobody lived to write a report, the request to stop is all that is known.
    stop_reason = report.stop_reason or event.stop_reason
    scheduler = _scheduler_end(record, event.requeued, stop_reason)
    reported = event.report is not None
    evidence = Evidence(run, report, reported, record, early_exit, event.log_tail, stop_reason, scheduler, code)
    return next(rule for rule in RULES if rule.applies(evidence)), evidence


def classify(run: Run, event: AttemptEnded, early_exit: str = "") -> Verdict:
    """Why the attempt ended: the verdict of the first of ``RULES`` that applies. ``early_exit``: what user code reported through
    the Core API."""
    rule, evidence = rule_for(run, event, early_exit)
    return rule.verdict(evidence)


def _failure(evidence: Evidence) -> str:
    return evidence.report.message or f"exit code {evidence.code}"


def _without_report(evidence: Evidence) -> str:
    code, tail = evidence.code_of_job, evidence.log_tail
    if code is None:
        return tail or "the job is gone and left no report"
    if evidence.disk_full:
        return f"exit code {code}; {_UNWRITTEN}: {tail}"
    number = signal_of(code)
    if number is not None:
        return f"what runs the entrypoint (srun or dethpc.exec) was {killed_by(number)}"
    return tail or f"exit code {code}; it left no end report"


def _before_training(record: JobRecord | None) -> str:
    return f"the job ended ({record.state.value if record else 'gone'}) before training began"


def _scheduler_end(record: JobRecord | None, requeued: bool, stop_reason: str) -> tuple[End, str] | None:
    if record is not None:
        if record.state in _FROM_SCHEDULER:
            end, why = _FROM_SCHEDULER[record.state]
            return end, record.reason or why
        if record.preempted:
            return _FROM_SCHEDULER[JobState.PREEMPTED]
        if record.state is JobState.CANCELLED:
            return End.CANCELLED, "the job was cancelled outside dethpc, for example by scancel"
    if requeued:
        # A job that is taken off its nodes is told so first; one whose node died is not.
        if stop_reason == StopReason.PREEMPTED:
            return End.PREEMPTED, "the job was requeued"
        return End.NODE_FAIL, "a node failed, and the scheduler requeued the job"
    return None
