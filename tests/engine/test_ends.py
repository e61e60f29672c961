"""Why an attempt ended, from every kind of evidence: what the master meant, the end report, Slurm's record, the stop file."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dethpc.domain.attempts.end_report import EndReport
from dethpc.domain.facts import Run
from dethpc.domain.ports import JobRecord, JobState
from dethpc.domain.states import End, Intent, RunState
from dethpc.engine import events
from dethpc.engine.ends import NO_SPACE, RULES, classify, conclusive, ended_at, rule_for

FINISHED = {"finished": True, "exit_code": 0}
CLEAN = {"finished": False, "exit_code": 0, "acked": True}  # it had been asked to stop, and did
FAILED = {"finished": False, "exit_code": 1, "phase": "train", "message": "ValueError: bad"}
KILLED = {"finished": False, "exit_code": 137, "signal": 9, "phase": "train", "message": "killed by signal 9"}
TERMINATED = {"finished": False, "exit_code": 143, "signal": 15, "phase": "train", "message": "killed by signal 15"}
NOTHING: dict[str, Any] = {}


def run(intent: Intent = Intent.GO, attempt: int = 0) -> Run:
    return Run(
        "1.1.1", 1, "1.1", 1, RunState.RUNNING, 0.0, 1, "main", intent=intent, intent_reason="pause", attempt=attempt
    )


def record(state: JobState, **more: Any) -> JobRecord:
    return JobRecord("7", "det", state, **more)


def _report(content: dict[str, Any] | None) -> EndReport | None:
    return None if content is None else EndReport.from_json(content)


def end_of(
    of: Run, report: EndReport | None, job: JobRecord | None, *, early_exit: str = "", **more: Any
) -> tuple[Run, events.AttemptEnded, str]:
    """The arguments of ``classify``."""
    return of, events.AttemptEnded(of.id, of.attempt, report, job, 1.0, **more), early_exit


def requeued(**more: Any) -> JobRecord:
    return record(JobState.PENDING, restarts=1, **more)


# Each row: end report; record (None: Slurm has forgotten the job, or keeps no accounts); the reason in stop.json; how it ended.
RECORDS: list[tuple[dict[str, Any], JobRecord | None, str, End]] = [
    # The training's own word goes before everything.
    (FINISHED, None, "", End.COMPLETED),
    (FINISHED, record(JobState.COMPLETED), "", End.COMPLETED),
    (FINISHED, record(JobState.COMPLETED, preempted=True), "preempted", End.COMPLETED),
    (FINISHED, record(JobState.TIMEOUT), "time_limit", End.COMPLETED),
    (FINISHED, record(JobState.CANCELLED), "preempted", End.COMPLETED),
    # Preempted: inside the grace, after it, with and without Slurm's word.
    (CLEAN, record(JobState.COMPLETED, preempted=True), "preempted", End.PREEMPTED),
    (CLEAN, record(JobState.FAILED, preempted=True), "preempted", End.PREEMPTED),
    (CLEAN, record(JobState.COMPLETED), "preempted", End.PREEMPTED),  # accounts do not say that it was preempted
    (CLEAN, None, "preempted", End.PREEMPTED),
    (FAILED, record(JobState.FAILED, preempted=True), "preempted", End.PREEMPTED),
    (FAILED, record(JobState.FAILED), "preempted", End.PREEMPTED),
    (NOTHING, record(JobState.PREEMPTED), "", End.PREEMPTED),
    (NOTHING, record(JobState.PREEMPTED, preempted=True), "preempted", End.PREEMPTED),
    (NOTHING, None, "preempted", End.PREEMPTED),
    # Time limits.
    (CLEAN, record(JobState.COMPLETED), "time_limit", End.TIMEOUT),
    (CLEAN, record(JobState.TIMEOUT), "time_limit", End.TIMEOUT),
    (CLEAN, None, "time_limit", End.TIMEOUT),
    (KILLED, record(JobState.TIMEOUT), "time_limit", End.TIMEOUT),
    (KILLED, None, "time_limit", End.TIMEOUT),
    (NOTHING, record(JobState.TIMEOUT), "", End.TIMEOUT),
    (NOTHING, record(JobState.DEADLINE), "", End.TIMEOUT),
    (NOTHING, None, "time_limit", End.TIMEOUT),
    # Hardware.
    (NOTHING, record(JobState.NODE_FAIL), "", End.NODE_FAIL),
    (NOTHING, record(JobState.BOOT_FAIL), "", End.NODE_FAIL),
    ({"finished": False, "exit_code": None, "stop_reason": "node_lost"}, None, "", End.NODE_FAIL),
    # Somebody wanted it gone.
    (CLEAN, record(JobState.CANCELLED), "preempted", End.CANCELLED),
    (NOTHING, record(JobState.CANCELLED), "", End.CANCELLED),
    (NOTHING, record(JobState.CANCELLED), "preempted", End.CANCELLED),
    # The trial's own faults.
    (FAILED, None, "", End.USER_ERROR),
    (FAILED, record(JobState.FAILED), "", End.USER_ERROR),
    (FAILED, record(JobState.FAILED), "time_limit", End.USER_ERROR),
    (KILLED, record(JobState.OUT_OF_MEMORY), "", End.OUT_OF_MEMORY),
    (KILLED, record(JobState.FAILED), "", End.USER_ERROR),
    (NOTHING, record(JobState.OUT_OF_MEMORY), "", End.OUT_OF_MEMORY),
    (
        CLEAN,
        record(JobState.OUT_OF_MEMORY),
        "time_limit",
        End.TIMEOUT,
    ),  # something met the limit, and yet it ended well
    # No evidence.
    (NOTHING, None, "", End.LOST),
    (NOTHING, record(JobState.FAILED), "", End.LOST),
    (NOTHING, record(JobState.COMPLETED), "", End.LOST),
]


@pytest.mark.parametrize(("report", "told", "asked", "end"), RECORDS)
def test_the_end_of_a_run_that_was_to_go_on(
    report: dict[str, Any], told: JobRecord | None, asked: str, end: End
) -> None:
    verdict = classify(
        *end_of(run(), _report({"stop_reason": asked or None, **report} if report else None), told, stop_reason=asked)
    )
    assert verdict.end is end
    assert verdict.reason or end is End.COMPLETED, "there is always a reason in words"


@pytest.mark.parametrize(
    ("told", "asked", "end"),
    [
        (requeued(preempted=True), "preempted", End.PREEMPTED),
        (requeued(preempted=True), "", End.PREEMPTED),
        (requeued(), "preempted", End.PREEMPTED),  # by hand: its processes were told
        (requeued(), "", End.NODE_FAIL),
        (None, "preempted", End.PREEMPTED),
        (None, "", End.NODE_FAIL),
    ],
)
@pytest.mark.parametrize("report", [None, KILLED])
def test_the_end_of_an_attempt_whose_job_slurm_queued_again(
    report: dict[str, Any] | None, told: JobRecord | None, asked: str, end: End
) -> None:
    assert classify(*end_of(run(), _report(report), told, requeued=True, stop_reason=asked)).end is end


@pytest.mark.parametrize("told", [None, record(JobState.CANCELLED), record(JobState.FAILED), record(JobState.TIMEOUT)])
@pytest.mark.parametrize("report", [None, FAILED, CLEAN, KILLED])
def test_what_the_master_killed_was_killed(report: dict[str, Any] | None, told: JobRecord | None) -> None:
    assert classify(*end_of(run(Intent.KILL), _report(report), told)).end is End.KILLED


@pytest.mark.parametrize("told", [None, record(JobState.COMPLETED), record(JobState.CANCELLED)])
def test_what_the_master_stopped_was_stopped(told: JobRecord | None) -> None:
    assert classify(*end_of(run(Intent.STOP), _report(CLEAN), told, stop_reason="pause")).end is End.STOPPED


@pytest.mark.parametrize(
    ("told", "end"),
    [
        (record(JobState.FAILED), End.LAUNCH_FAILED),
        (record(JobState.CANCELLED), End.CANCELLED),
        (record(JobState.TIMEOUT), End.TIMEOUT),
        (record(JobState.PREEMPTED), End.PREEMPTED),
        (record(JobState.COMPLETED), End.LOST),
        (None, End.LOST),
    ],
)
def test_a_job_that_ended_before_training_began(told: JobRecord | None, end: End) -> None:
    assert classify(*end_of(run(attempt=-1), None, told)).end is end


@pytest.mark.parametrize(
    ("report", "asked", "settled"),
    [
        (FINISHED, "", True),
        (FINISHED, "preempted", True),
        (FAILED, "", True),
        (CLEAN, "time_limit", True),
        (CLEAN, "preempted", False),  # preempted, or cancelled from outside?
        (KILLED, "", False),  # out of memory?
        (TERMINATED, "", False),  # is its srun gone?
        (FAILED, "preempted", False),
    ],
)
def test_only_what_the_scheduler_could_add_to_is_waited_for(report: dict[str, Any], asked: str, settled: bool) -> None:
    assert conclusive(run(), _report({**report, "stop_reason": asked or None})) is settled
    assert conclusive(run(), None) is False


@pytest.mark.parametrize(
    ("job", "stop_reason", "end"),
    [
        (record(JobState.CANCELLED), "preempted", End.CANCELLED),
        (record(JobState.TIMEOUT), "time_limit", End.TIMEOUT),
        (record(JobState.PREEMPTED), "preempted", End.PREEMPTED),
        (record(JobState.COMPLETED), "preempted", End.COMPLETED),
        (record(JobState.COMPLETED), "time_limit", End.COMPLETED),
        (record(JobState.OUT_OF_MEMORY), "time_limit", End.COMPLETED),
        (record(JobState.CANCELLED), "", End.COMPLETED),  # it came too late
        (None, "preempted", End.COMPLETED),
    ],
)
def test_exit_code_0_of_a_task_without_a_trial_after_term_is_no_success_of_a_job_that_was_cancelled(
    job: JobRecord | None, stop_reason: str, end: End
) -> None:
    task = replace(run(), experiment_id=None)
    report = _report({**FINISHED, "stop_reason": stop_reason or None})
    assert conclusive(task, report) is not bool(stop_reason)
    verdict = classify(*end_of(task, report, job, stop_reason="preempted"))
    assert verdict.end is end
    assert end is not End.CANCELLED or "scancel" in verdict.reason


# Which rule spoke: its name; end report; record; run; more of what is known.
SPOKE: list[tuple[str, dict[str, Any] | None, JobRecord | None, Run, dict[str, Any]]] = [
    ("invalid hyperparameters", FINISHED, None, run(Intent.KILL), {"early_exit": "EXITED_REASON_INVALID_HP"}),
    ("finished", FINISHED, record(JobState.CANCELLED), run(Intent.KILL), {}),
    ("killed by the master", FAILED, None, run(Intent.KILL), {"early_exit": "EXITED_REASON_INVALID_HP"}),
    ("stopped by the master", CLEAN, record(JobState.CANCELLED), run(Intent.STOP), {"stop_reason": "pause"}),
    ("the scheduler's word", CLEAN, record(JobState.CANCELLED), run(), {"stop_reason": "preempted"}),
    ("left when asked", CLEAN, record(JobState.OUT_OF_MEMORY), run(), {"stop_reason": "time_limit"}),
    ("left for a reason of its own", CLEAN, None, run(), {"stop_reason": "interrupted"}),
    ("no master", {"exit_code": 1, "phase": "waiting"}, None, run(), {}),
    ("its storage was away before training", {"exit_code": 1, "phase": "storage"}, None, run(), {}),
    ("the launcher refused", {"exit_code": 2, "phase": "launch"}, None, run(), {}),
    ("the nodes did not meet", {"exit_code": 1, "phase": "rendezvous"}, None, run(), {}),
    ("failed before training", {"exit_code": 1, "phase": "unpack"}, None, run(), {}),
    (
        "its own checkpoint is damaged",
        FAILED,
        None,
        run(),
        {"early_exit": "CHECKPOINT_DAMAGED: c1 is damaged", "stop_reason": "preempted"},
    ),
    (
        "the checkpoint of another trial is damaged",
        FAILED,
        None,
        run(),
        {"early_exit": "SOURCE_CHECKPOINT_DAMAGED: c1 is damaged"},
    ),
    ("its launcher was killed", TERMINATED, record(JobState.FAILED, exit_code=137), run(), {}),
    ("cut short", FAILED, None, run(), {"stop_reason": "preempted"}),
    ("its storage is away", FAILED, None, run(), {"early_exit": "STORAGE_AWAY: s3://bucket: nobody answers"}),
    ("would fail again", FAILED, None, run(), {"early_exit": "WOULD_FAIL_AGAIN: acuracy is not among them"}),
    ("failed by itself", FAILED, None, run(), {"stop_reason": "time_limit"}),
    ("stopped without a report", None, None, run(Intent.STOP), {}),
    ("gone when asked", None, None, run(), {"stop_reason": "node_lost"}),
    ("never started", None, record(JobState.FAILED), run(attempt=-1), {}),
    (
        "finished without a report",
        None,
        record(JobState.COMPLETED, exit_code=0),
        replace(run(), experiment_id=None),
        {},
    ),
    ("no evidence", None, None, run(), {}),
]


@pytest.mark.parametrize(("name", "report", "told", "of", "more"), SPOKE, ids=[row[0] for row in SPOKE])
def test_rule_that_speaks_is_the_first_that_applies(
    name: str, report: dict[str, Any] | None, told: JobRecord | None, of: Run, more: dict[str, Any]
) -> None:
    rule, evidence = rule_for(*end_of(of, _report(report), told, **more))
    assert rule.name == name
    assert rule.verdict(evidence) == classify(*end_of(of, _report(report), told, **more))


def test_every_rule_of_the_taxonomy_is_shown() -> None:
    assert [row[0] for row in SPOKE] == [rule.name for rule in RULES]


@pytest.mark.parametrize(
    ("job", "log_tail", "reason"),
    [
        ({"exit_code": 137}, "line 12: 4711 Killed", "(srun or dethpc.exec) was killed by signal 9 (SIGKILL); unless"),
        (
            {"signal": 9},
            "",
            "(srun or dethpc.exec) was killed by signal 9 (SIGKILL); unless somebody killed it, the node",
        ),
        ({"signal": 15}, "", "(srun or dethpc.exec) was killed by signal 15 (SIGTERM)"),
        ({"exit_code": 3}, f"{NO_SPACE}/home", "exit code 3; its end report could not be written: No space left on"),
        ({"exit_code": 1}, "python3: not found", "python3: not found"),
        ({"exit_code": 1}, "", "exit code 1; it left no end report"),
        ({}, "", "the job is gone and left no report"),
    ],
)
def test_an_attempt_without_a_report_ends_with_what_the_scheduler_knows(
    job: dict[str, int], log_tail: str, reason: str
) -> None:
    verdict = classify(*end_of(run(), None, record(JobState.FAILED, **job), log_tail=log_tail))
    assert verdict.end is End.LOST and reason in verdict.reason
    assert "of memory" not in verdict.reason or "by signal 9" in verdict.reason


def test_exit_code_0_without_a_report_is_success_of_a_command_and_no_end_of_a_trial() -> None:
    job, command = record(JobState.COMPLETED, exit_code=0), replace(run(), experiment_id=None)
    verdict = classify(*end_of(command, None, job, log_tail=f"{NO_SPACE}/home"))
    assert (verdict.end, verdict.exit_code) == (End.COMPLETED, 0) and NO_SPACE in verdict.reason
    assert classify(*end_of(run(), None, job)).end is End.LOST


@pytest.mark.parametrize("stop_reason", [None, "preempted"])
@pytest.mark.parametrize(("code", "end"), [(137, End.LOST), (143, End.USER_ERROR), (None, End.USER_ERROR)])
def test_what_term_ended_has_failed_by_itself_unless_its_launcher_was_killed(
    code: int | None, end: End, stop_reason: str | None
) -> None:
    """An attempt that is told of TERM takes it for a preemption."""
    job = None if code is None else record(JobState.FAILED, exit_code=code)
    verdict = classify(*end_of(run(), _report({**TERMINATED, "stop_reason": stop_reason}), job))
    if stop_reason and end is End.USER_ERROR:
        end = End.PREEMPTED
    assert verdict.end is end and ("(srun or dethpc.exec) was killed by signal 9" in verdict.reason) is (code == 137)


def test_a_task_whose_launcher_was_killed_was_not_preempted_though_it_lives_to_report_nothing() -> None:
    job = record(JobState.FAILED, exit_code=137)
    verdict = classify(*end_of(run(), None, job, stop_reason="preempted"))
    assert verdict.end is End.LOST and "(srun or dethpc.exec) was killed by signal 9" in verdict.reason
    assert classify(*end_of(run(), None, None, stop_reason="preempted")).end is End.PREEMPTED
    assert classify(*end_of(run(Intent.STOP), None, job, stop_reason="preempted")).end is End.STOPPED


def test_time_limit_has_one_message() -> None:
    by_slurm = classify(*end_of(run(), None, record(JobState.TIMEOUT)))
    assert by_slurm.reason == classify(*end_of(run(), _report(CLEAN), None, stop_reason="time_limit")).reason


@pytest.mark.parametrize(
    ("by_node", "by_scheduler", "at"),
    [
        (114.0, 115.0, 114.0),
        (None, 115.0, 115.0),
        (None, None, 192.0),  # reports of old jobs have no time
        (250.0, None, 192.0),  # a node's clock may be ahead
        (90.0, 115.0, 100.0),
    ],
)
def test_an_attempt_ended_when_its_node_says_or_the_scheduler(
    by_node: float | None, by_scheduler: float | None, at: float
) -> None:
    job = record(JobState.COMPLETED, ended_at=by_scheduler)
    assert ended_at(100.0, EndReport(at=by_node), job, 192.0) == at
    if by_node is None:
        assert ended_at(100.0, None, job, 192.0) == at


@pytest.mark.parametrize(
    ("why", "reason"), [("the process that watched over the job died",) * 2, ("", "a node failed")]
)
def test_what_a_scheduler_says_in_words_of_an_end_is_its_reason(why: str, reason: str) -> None:
    job = replace(record(JobState.NODE_FAIL), reason=why)
    assert classify(*end_of(run(), None, job)).reason == reason
