"""The life of a run: what the scheduler and the run directory say of it. What that means for its trial is the trial's matter."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any

from dethpc.domain.facts import Attempt, Row, Run
from dethpc.domain.ports import SUSPENDED, JobState
from dethpc.domain.reports import NAMES_ONE, Report, ReportKind, fault
from dethpc.domain.states import AttemptState, End, Intent, RunState
from dethpc.engine import checkpoints, events, nodes
from dethpc.engine.decision import Decision
from dethpc.engine.ends import classify, ended_at
from dethpc.engine.reports import metric_of
from dethpc.engine.state import ClusterState
from dethpc.engine.stop import kill_run
from dethpc.engine.tasks import TaskRun
from dethpc.engine.trials import TrialRun, rested

PREEMPTION_TIMEOUT = 3600.0
"""Seconds a run has to save its checkpoint after it is asked to stop, unless the config says otherwise."""


def _owned(state: ClusterState, run: Run) -> TrialRun | TaskRun:
    """The live run as what it belongs to sees it."""
    return TrialRun(state, run) if state.tasks[run.task_id].kind.trains else TaskRun(state, run)


def prepared(state: ClusterState, event: events.Prepared) -> Decision:
    run = state.runs.get(event.run_id)
    if run is None or run.token_sha256 == event.token_sha256:
        return Decision()
    return Decision([replace(run, token_sha256=event.token_sha256)])


def submitted(state: ClusterState, event: events.Submitted) -> Decision:
    run = state.runs.get(event.run_id)
    if run is None:
        return Decision()
    if run.state is RunState.SUBMITTING:
        run = replace(run, state=RunState.PENDING, reason="")
    scheduler = event.scheduler or run.scheduler
    return Decision([replace(run, scheduler_job_id=event.job_id, submitted_at=event.at, scheduler=scheduler)])


def scheduler_known(state: ClusterState, event: events.SchedulerKnown) -> Decision:
    run = state.runs.get(event.run_id)
    if run is None or run.scheduler == event.scheduler:
        return Decision()
    return Decision([replace(run, scheduler=event.scheduler)])


def submit_deferred(state: ClusterState, event: events.SubmitDeferred) -> Decision:
    """Its job stands aside in the queue, and lets others pass."""
    run = state.runs.get(event.run_id)
    if run is None or run.state is not RunState.SUBMITTING or run.reason == event.why:
        return Decision()
    return Decision([replace(run, reason=event.why)], [events.Schedule(event.at)])


def submit_failed(state: ClusterState, event: events.SubmitFailed) -> Decision:
    run = state.runs.get(event.run_id)
    if run is None:
        return Decision()
    ended_run = replace(run, state=RunState.ENDED, end=End.LAUNCH_FAILED, reason=event.message, ended_at=event.at)
    after = _owned(state, run).refused(event.message, event.at)
    return Decision([ended_run, *after.rows], _makes_room(after, event.at))


def job_seen(state: ClusterState, event: events.JobSeen) -> Decision:
    run, record = state.runs.get(event.run_id), event.record
    if run is None or run.state is RunState.ENDED:
        return Decision()
    if record.state is JobState.PENDING and run.state is not RunState.RUNNING:
        changed = replace(run, state=RunState.PENDING, scheduler_job_id=record.job_id, reason=record.reason)
    elif record.state is JobState.RUNNING and run.state is not RunState.RUNNING:
        changed = replace(run, scheduler_job_id=record.job_id, reason="", nodes=list(record.nodes) or run.nodes)
    elif record.state is JobState.RUNNING and SUSPENDED in (record.reason, run.reason):
        changed = replace(run, reason=record.reason)
    else:
        return Decision()
    return Decision() if changed == run else Decision([changed])


def started(state: ClusterState, event: events.AttemptStarted) -> Decision:
    run = state.runs.get(event.run_id)
    if run is None or event.attempt <= run.attempt:
        return Decision()
    attempt = Attempt(
        run_id=run.id,
        number=event.attempt,
        experiment_id=run.experiment_id,
        task_id=run.task_id,
        state=AttemptState.RUNNING,
        started_at=event.at,
        resumed_from=event.resumed_from,
        resumed_steps=event.resumed_steps,
        nodes=event.nodes,
    )
    running = replace(
        run,
        state=RunState.RUNNING,
        attempt=event.attempt,
        nodes=event.nodes,
        started_at=run.started_at or event.at,
        reason="",
    )
    rows: list[Row] = [attempt, running, *_owned(state, run).started(event)]
    return Decision(rows, [events.Schedule(event.at)])  # it has left the scheduler's queue: another may join it


def reported(state: ClusterState, event: events.Reported) -> Decision:
    """Take in journal events. Those already applied are skipped; after a gap nothing is taken; unsound ones count for nothing.

    A job that is queued again goes on from what its last attempt left, which may be more than the master had read: until the next
    attempt starts, events of that one still count.
    """
    run, attempt = state.runs.get(event.run_id), state.attempt(event.run_id, event.attempt)
    if run is None or attempt is None:
        return Decision()
    if _is_over(run, attempt):
        return Decision()
    accepted = _following(event.reports, attempt.applied_seq, gaps=event.remains)
    seq = accepted[-1].seq if accepted else attempt.applied_seq
    offset = attempt.applied_offset if event.offset is None else event.offset
    if seq == attempt.applied_seq and offset == attempt.applied_offset:
        return Decision()
    sound = accepted if event.sound else [report for report in accepted if not fault(report)]
    if event.others:
        sound = [report for report in sound if not _takes_over(report, event.others)]
    decision = _owned(state, run).reported(attempt, sound)
    decision.rows.append(replace(attempt, applied_seq=seq, applied_offset=offset, **marks(attempt, sound)))
    return decision


def _takes_over(report: Report, others: Collection[str]) -> bool:
    return report.kind in NAMES_ONE and report.data["uuid"] in others


def posted(state: ClusterState, event: events.Posted) -> Decision:
    """Take in metrics that did not come from the attempt's chief. When it is over they are kept, and nothing follows from them."""
    run = state.runs.get(event.attempt.run_id)
    attempt = state.attempt(event.attempt.run_id, event.attempt.number)
    if run is None or attempt is None or _is_over(run, attempt):
        assert event.attempt.experiment_id is not None
        whose = event.attempt.experiment_id, event.trial_id, event.attempt
        return Decision([metric_of(*whose, report) for report in event.reports])
    if not event.reports:
        return Decision()
    decision = _owned(state, run).reported(attempt, event.reports)
    decision.rows.append(replace(attempt, **marks(attempt, event.reports)))
    return decision


def _is_over(run: Run, attempt: Attempt) -> bool:
    """Whether nothing that the attempt says counts any more."""
    queued_again = run.state is RunState.PENDING and run.attempt == attempt.number
    return attempt.state is AttemptState.ENDED and not queued_again


def _following(reports: Iterable[Report], seq: int, *, gaps: bool) -> list[Report]:
    """Those that come next after ``seq``, without a gap unless there may be ``gaps``."""
    accepted: list[Report] = []
    for report in reports:
        if report.seq == seq + 1 or (gaps and report.seq > seq):
            accepted.append(report)
            seq = report.seq
        elif report.seq > seq:
            break
    return accepted


def ended(state: ClusterState, event: events.AttemptEnded) -> Decision:
    run = state.runs.get(event.run_id)
    if run is None or run.state is RunState.ENDED:
        return Decision()
    meaning, decision = _owned(state, run), Decision()
    verdict = classify(run, event, meaning.early_exit)
    if event.missing:
        verdict = verdict._replace(reason="; ".join(filter(None, [verdict.reason, _incomplete(event.missing)])))
    attempt = state.attempt(event.run_id, event.attempt)
    begun = run.created_at if attempt is None else attempt.started_at
    verdict = verdict._replace(at=ended_at(begun, event.report, event.record, event.at))
    if attempt is not None and attempt.state is AttemptState.RUNNING:
        decision.rows.append(
            replace(attempt, state=AttemptState.ENDED, ended_at=verdict.at, end=verdict.end, reason=verdict.reason)
        )
        if state.rules_of(run.pool).kind == "fair_share":
            seconds = verdict.at - attempt.started_at
            decision.then.append(events.Served(state.job_of(run).id, run.slots * seconds, event.at))
    decision.rows += nodes.judged(state, run, attempt, verdict, event)
    decision.rows += checkpoints.never_arrived(state, state.tasks[run.task_id].trial_id, run.id)
    if event.requeued and run.intent is Intent.GO:
        run = replace(run, state=RunState.PENDING, reason=verdict.reason)
        why, rows = meaning.queued_again(attempt, verdict, event)
        if why:
            run = replace(run, intent=Intent.KILL, intent_reason=why)
        decision.rows += [run, *rows]
        return decision
    decision.rows.append(
        replace(
            run,
            state=RunState.ENDED,
            ended_at=verdict.at,
            end=verdict.end,
            reason=verdict.reason,
            exit_code=verdict.exit_code,
        )
    )
    after = meaning.ended(attempt, verdict, event)
    return Decision([*decision.rows, *after.rows], [*decision.then, *_makes_room(after, event.at)])


def _makes_room(after: Decision, at: float) -> list[events.Event]:
    """A run that ends leaves room for others. It may have been the last one, and then nothing else would let them in."""
    return [*after.then, events.Schedule(at)]


def _incomplete(missing: int) -> str:
    were = "1 of its reports was" if missing == 1 else f"{missing} of its reports were"
    return f"{were} damaged in its journal and cannot be counted"


def tick(state: ClusterState, event: events.Tick) -> Decision:
    """Kill runs that were asked to stop and did not in time; wake trials that have rested."""
    decision = Decision()
    for trial_id, until in state.resting.items():
        if rested(until, event.at):
            trial = state.trial(trial_id)
            assert trial is not None
            decision.rows.append(replace(trial, not_before=None))
    if decision.rows:
        decision.then.append(events.Schedule(event.at))
    for run in state.runs.values():
        deadline = _deadline(state, run)
        if deadline is not None and event.at >= deadline:
            reason = f"{run.intent_reason}: did not stop within its preemption_timeout"
            kill_run(state.job_of(run), state.member_of(run), reason, decision)
    return decision


def next_deadline(state: ClusterState) -> float | None:
    """When ``tick`` next has something to do; None: never, as things stand."""
    deadlines = [d for run in list(state.runs.values()) if (d := _deadline(state, run)) is not None]
    return min([*deadlines, *list(state.resting.values())], default=None)


def overdue(state: ClusterState, at: float) -> bool:
    """Whether ``tick`` has something to do at ``at``."""
    deadline = next_deadline(state)
    if deadline is None:
        return False
    return at >= deadline or any(rested(until, at) for until in list(state.resting.values()))


def _deadline(state: ClusterState, run: Run) -> float | None:
    if run.intent is not Intent.STOP or run.stopping_since is None:
        return None
    return run.stopping_since + preemption_timeout(state, run)


def preemption_timeout(state: ClusterState, run: Run) -> float:
    """Seconds from the wish to stop the live run until it is killed."""
    return float(_owned(state, run).preemption_timeout or PREEMPTION_TIMEOUT)


def marks(attempt: Attempt, reports: Sequence[Report]) -> dict[str, Any]:
    """What the attempt's row keeps of ``reports``, which are taken in now: when it trained and saved, for whoever asks later where
    its slots went."""
    first_at, first_steps = attempt.first_at, attempt.first_steps
    last_at, last_steps, saved_at, saving = attempt.last_at, attempt.last_steps, attempt.saved_at, attempt.saving
    for report in reports:
        if report.kind not in (ReportKind.METRICS, ReportKind.CHECKPOINT):
            continue
        steps = int(report.data.get("steps_completed") or 0)
        if first_at is None:
            first_at, first_steps = report.at, steps
        last_at, last_steps = report.at, max(last_steps or 0, steps)
        if report.kind == ReportKind.CHECKPOINT:
            saved_at = report.at
            saving = (saving or 0.0) + _measured(report.data.get("seconds"))
    return {
        "first_at": first_at,
        "first_steps": first_steps,
        "last_at": last_at,
        "last_steps": last_steps,
        "saved_at": saved_at,
        "saving": saving,
    }


def _measured(seconds: object) -> float:
    """0 for what is no time, as journals of other releases may have it."""
    return seconds if isinstance(seconds, (int, float)) and 0 < seconds < math.inf else 0.0
