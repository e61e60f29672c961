"""Decisions about runs and attempts: what the scheduler and the run directories say, and what follows for the trial."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from dethpc.config.dialects.units import trained
from dethpc.config.experiment import ExperimentConfig
from dethpc.config.searcher import Method
from dethpc.domain.facts import Attempt, Checkpoint, Metric, Run, Trial
from dethpc.domain.ports import JobState
from dethpc.domain.reports import Report, ReportKind
from dethpc.domain.states import AttemptState, CheckpointState, End, Intent, RunState, State
from dethpc.engine import checkpoints, events, goodput, nodes
from dethpc.engine.decision import Decision
from dethpc.engine.ends import Verdict, classify
from dethpc.engine.experiments import kill_run, paused_with
from dethpc.engine.replace import replace
from dethpc.engine.state import ClusterState, ExperimentState, exit_of, waits_for_searcher
from dethpc.errors import NotFound, Refused

MAX_STALLED = 12
"""How many attempts in a row may end, through no fault of the trial's, without a checkpoint further on than where they began."""

STALLED_BY_TIME = 4
"""For how many one counts that came to its time limit: the next would come to it as well."""

MAX_REST = 300.0
"""The longest rest after a failure, in seconds."""

PREEMPTION_TIMEOUT = 3600.0
"""Seconds that a run has for its checkpoint after it was asked to stop, unless the config says otherwise."""


def prepared(state: ClusterState, event: events.Prepared) -> Decision:
    run = state.runs.get(event.run_id)
    if run is None or run.token_sha256 == event.token_sha256:
        return Decision()
    return Decision([replace(run, token_sha256=event.token_sha256)])


def submitted(state: ClusterState, event: events.Submitted) -> Decision:
    run = state.runs.get(event.run_id)
    if run is None:
        return Decision()
    now = RunState.PENDING if run.state is RunState.SUBMITTING else run.state
    return Decision([replace(run, state=now, scheduler_job_id=event.job_id, submitted_at=event.at)])


def submit_failed(state: ClusterState, event: events.SubmitFailed) -> Decision:
    """A refusal for good would meet every other trial of the experiment as well, but each says so itself."""
    run = state.runs.get(event.run_id)
    if run is None:
        return Decision()
    ended_run = replace(run, state=RunState.ENDED, end=End.LAUNCH_FAILED, reason=event.message, ended_at=event.at)
    trial = state.trial(run.trial_id)
    assert trial is not None
    decision = Decision([ended_run])
    _close(trial, State.ERROR, event.message, event.at, decision)
    return decision


def job_seen(state: ClusterState, event: events.JobSeen) -> Decision:
    run, record = state.runs.get(event.run_id), event.record
    if run is None or run.state is RunState.ENDED:
        return Decision()
    if record.state is JobState.PENDING and run.state is not RunState.RUNNING:
        changed = replace(run, state=RunState.PENDING, scheduler_job_id=record.job_id, reason=record.reason)
    elif record.state is JobState.RUNNING and run.state is not RunState.RUNNING:
        changed = replace(run, scheduler_job_id=record.job_id, reason="", nodes=list(record.nodes) or run.nodes)
    else:
        return Decision()
    return Decision() if changed == run else Decision([changed])


def started(state: ClusterState, event: events.AttemptStarted) -> Decision:
    run = state.runs.get(event.run_id)
    if run is None or event.attempt <= run.attempt:
        return Decision()
    trial = state.trial(run.trial_id)
    assert trial is not None
    own = state.checkpoints.get(trial.id, {})
    decision = Decision()
    decision.rows += _void_after_resume(state, trial, event)
    decision.rows += [
        Attempt(
            run_id=run.id,
            number=event.attempt,
            trial_id=trial.id,
            state=AttemptState.RUNNING,
            started_at=event.at,
            resumed_from=event.resumed_from,
            resumed_steps=event.resumed_steps,
            nodes=event.nodes,
        ),
        replace(
            run,
            state=RunState.RUNNING,
            attempt=event.attempt,
            nodes=event.nodes,
            started_at=run.started_at or event.at,
            reason="",
        ),
        replace(
            trial,
            started_at=trial.started_at or event.at,
            steps_completed=event.resumed_steps,
            latest_checkpoint=event.resumed_from if event.resumed_from in own else None,
        ),
    ]
    decision.then.append(events.Schedule(event.at))  # it has left the scheduler's queue: another may join it
    return decision


def _void_after_resume(state: ClusterState, trial: Trial, event: events.AttemptStarted) -> list[Attempt]:
    """Earlier attempts with what they reported after the checkpoint that this one resumes from declared void.

    A later attempt does that part of the training again, so its reports would otherwise be counted twice.
    """
    earlier = state.attempts.get(trial.id, [])
    checkpoint = state.checkpoints.get(trial.id, {}).get(event.resumed_from or "")
    changed: list[Attempt] = []
    after_checkpoint = checkpoint is None
    for attempt in earlier:
        keep, kept_at = attempt.void_after, attempt.kept_at
        if checkpoint is not None and (attempt.run_id, attempt.number) == (checkpoint.run_id, checkpoint.attempt):
            keep = checkpoint.seq if keep is None else min(keep, checkpoint.seq)
            kept_at = checkpoint.reported_at if kept_at is None else min(kept_at, checkpoint.reported_at)
            after_checkpoint = True
        elif after_checkpoint:
            keep, kept_at = 0, attempt.started_at
        ended = replace(attempt, void_after=keep, kept_at=kept_at)
        if attempt.state is AttemptState.RUNNING and attempt.run_id == event.run_id:
            ended = replace(ended, state=AttemptState.ENDED, ended_at=event.at, end=End.NODE_FAIL)
        if ended != attempt:
            changed.append(ended)
    return changed


def reported(state: ClusterState, event: events.Reported) -> Decision:
    """Take in journal events. Those already applied are skipped; after a gap nothing is taken.

    A job that is queued again goes on from what its last attempt left, which may be more than the master had read: until the next
    attempt starts, events of that one still count.
    """
    run, attempt = state.runs.get(event.run_id), state.attempt(event.run_id, event.attempt)
    if run is None or attempt is None:
        return Decision()
    queued_again = run.state is RunState.PENDING and run.attempt == event.attempt
    if attempt.state is AttemptState.ENDED and not queued_again:
        return Decision()
    trial = state.trial(run.trial_id)
    assert trial is not None
    experiment = state.experiments[trial.experiment_id]
    decision, seq = Decision(), attempt.applied_seq
    for report in event.reports:
        if report.seq <= seq:
            continue
        if report.seq != seq + 1:
            break
        seq = report.seq
        take = _REPORTS.get(report.kind)
        if take is not None:
            trial = take(experiment, trial, attempt, report, decision)
        elif report.kind == ReportKind.CHECKPOINT_DELETED:
            trial = _checkpoint_deleted(state, trial, report, decision)
    offset = attempt.applied_offset if event.offset is None else event.offset
    if seq == attempt.applied_seq and offset == attempt.applied_offset:
        return Decision()
    seen = goodput.marks(attempt, event.reports, seq)
    decision.rows.append(replace(attempt, applied_seq=seq, applied_offset=offset, **seen))
    if trial != state.trial(run.trial_id):
        decision.rows.append(trial)
    return decision


def _metrics(experiment: ExperimentState, trial: Trial, attempt: Attempt, report: Report, decision: Decision) -> Trial:
    group, steps = str(report.data["group"]), int(report.data["steps_completed"])
    metrics = reported_values(report.data)
    decision.rows.append(
        Metric(
            run_id=attempt.run_id,
            attempt=attempt.number,
            seq=report.seq,
            experiment_id=trial.experiment_id,
            trial_id=trial.id,
            group=group,
            steps_completed=steps,
            reported_at=report.at,
            metrics=metrics,
        )
    )
    trial = replace(trial, steps_completed=max(trial.steps_completed, steps))
    searcher = experiment.config.searcher
    if group != "validation" or searcher.metric not in metrics:
        return trial
    value = number(metrics[searcher.metric])
    length = trained(experiment.config, trial.hparams, metrics, steps)
    if not math.isnan(length):
        decision.then.append(events.Validated(trial.id, length, value, report.at))
    return _with_value(trial, searcher, value, steps)


def _with_value(trial: Trial, searcher: Method, value: float, steps: int) -> Trial:
    if not math.isfinite(value):
        return trial
    best, smaller = trial.best_validation, searcher.smaller_is_better
    if best is None or (value < best if smaller else value > best):
        return replace(trial, latest_validation=value, best_validation=value, best_validation_steps=steps)
    return replace(trial, latest_validation=value)


def _searcher_op(
    experiment: ExperimentState, trial: Trial, attempt: Attempt, report: Report, decision: Decision
) -> Trial:
    """Code that trains by operations says itself how long it has trained, and how well."""
    length, value = number(report.data.get("length")), number(report.data.get("metric"))
    if not math.isnan(length):
        decision.then.append(events.Validated(trial.id, length, value, report.at))
    return _with_value(trial, experiment.config.searcher, value, trial.steps_completed)


def reported_values(data: Mapping[str, Any]) -> dict[str, Any]:
    """What a report of metrics holds, with the values of single batches, where it has them, under ``batch_metrics``."""
    metrics: dict[str, Any] = data["metrics"]
    return {**metrics, "batch_metrics": data["batch_metrics"]} if data.get("batch_metrics") else metrics


def number(value: Any) -> float:
    """A metric's value as a float: journals spell NaN and infinities as strings; anything else that is no number is NaN."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return math.nan


def _checkpoint(
    experiment: ExperimentState, trial: Trial, attempt: Attempt, report: Report, decision: Decision
) -> Trial:
    data = report.data
    decision.rows.append(
        Checkpoint(
            uuid=str(data["uuid"]),
            experiment_id=trial.experiment_id,
            trial_id=trial.id,
            run_id=attempt.run_id,
            attempt=attempt.number,
            seq=report.seq,
            state=CheckpointState.COMPLETED,
            steps_completed=int(data.get("steps_completed") or 0),
            reported_at=report.at,
            metadata=data.get("metadata") or {},
            resources=data.get("resources") or {},
            storage=data.get("storage") or {},
            seconds=None if math.isnan(seconds := number(data.get("seconds"))) else seconds,
        )
    )
    return replace(trial, latest_checkpoint=str(data["uuid"]))


def _progress(experiment: ExperimentState, trial: Trial, attempt: Attempt, report: Report, decision: Decision) -> Trial:
    value = number(report.data.get("progress"))
    return trial if math.isnan(value) else replace(trial, progress=min(1.0, max(0.0, value)))


def _early_exit(
    experiment: ExperimentState, trial: Trial, attempt: Attempt, report: Report, decision: Decision
) -> Trial:
    return replace(trial, early_exit=str(report.data.get("reason", "")))


def _status(experiment: ExperimentState, trial: Trial, attempt: Attempt, report: Report, decision: Decision) -> Trial:
    return replace(trial, status=str(report.data.get("status", "")))


def _run_metadata(
    experiment: ExperimentState, trial: Trial, attempt: Attempt, report: Report, decision: Decision
) -> Trial:
    return replace(trial, metadata=dict(report.data.get("metadata") or {}))


def _checkpoint_deleted(state: ClusterState, trial: Trial, report: Report, decision: Decision) -> Trial:
    known = dict(state.checkpoints.get(trial.id, {}))
    known.update((row.uuid, row) for row in decision.rows if isinstance(row, Checkpoint))
    left = dict(report.data.get("resources") or {})
    for row in checkpoints.deleted_by_trial(trial, known, str(report.data.get("uuid")), left):
        if isinstance(row, Trial):
            trial = row
        else:
            decision.rows.append(row)
    return trial


_REPORTS: dict[str, Callable[[ExperimentState, Trial, Attempt, Report, Decision], Trial]] = {
    ReportKind.METRICS: _metrics,
    ReportKind.SEARCHER_OP: _searcher_op,
    ReportKind.CHECKPOINT: _checkpoint,
    ReportKind.PROGRESS: _progress,
    ReportKind.EARLY_EXIT: _early_exit,
    ReportKind.STATUS: _status,
    ReportKind.RUN_METADATA: _run_metadata,
}


def early_exit(state: ClusterState, event: events.EarlyExit) -> Decision:
    trial = state.trial(event.trial_id)
    if trial is None or trial.state.terminal:
        raise Refused(f"trial {event.trial_id} has ended already")
    return Decision([replace(trial, early_exit=event.reason)])


def describe(state: ClusterState, event: events.DescribeTrial) -> Decision:
    trial = state.trial(event.trial_id)
    if trial is None:
        raise NotFound(f"no trial {event.trial_id}")
    changed: dict[str, Any] = dict(event.changes)
    return Decision([replace(trial, **changed)])


def ended(state: ClusterState, event: events.AttemptEnded) -> Decision:
    run = state.runs.get(event.run_id)
    if run is None or run.state is RunState.ENDED:
        return Decision()
    trial = state.trial(run.trial_id)
    assert trial is not None
    experiment, decision = state.experiments[trial.experiment_id], Decision()
    verdict = classify(
        run,
        event.report,
        event.record,
        early_exit=trial.early_exit,
        requeued=event.requeued,
        log_tail=event.log_tail,
        asked=event.asked,
    )
    attempt = state.attempt(event.run_id, event.attempt)
    if attempt is not None and attempt.state is AttemptState.RUNNING:
        decision.rows.append(
            replace(attempt, state=AttemptState.ENDED, ended_at=event.at, end=verdict.end, reason=verdict.reason)
        )
        if state.rules_of(run.pool).kind == "fair_share":
            seconds = max(0.0, event.at - attempt.started_at)
            decision.then.append(events.Served(experiment.id, run.slots * seconds, event.at))
    trial = _weighed(state, trial, run, attempt, verdict)
    decision.rows += nodes.judged(state, run, attempt, verdict, event)
    if event.requeued and run.intent is Intent.GO:
        run = replace(run, state=RunState.PENDING, reason=verdict.reason)
        if why := _stuck(trial, verdict):
            run = replace(run, intent=Intent.KILL, intent_reason=why)
            trial = replace(trial, state=State.STOPPING_ERROR, reason=why)
        decision.rows += [run, *([trial] if trial != state.trial(trial.id) else [])]
        return decision
    decision.rows.append(
        replace(
            run,
            state=RunState.ENDED,
            ended_at=event.at,
            end=verdict.end,
            reason=verdict.reason,
            exit_code=verdict.exit_code,
        )
    )
    _after_run(experiment, trial, verdict, event, decision)
    return decision


def _weighed(state: ClusterState, trial: Trial, run: Run, attempt: Attempt | None, verdict: Verdict) -> Trial:
    """The trial with what its attempt's end adds to, or takes from, the reasons to give it up."""
    moved = attempt is not None and attempt.applied_seq > 0
    lost = 0 if moved else trial.lost + (verdict.end in (End.LOST, End.LAUNCH_FAILED))
    further = attempt is not None and any(
        checkpoint.steps_completed > attempt.resumed_steps and checkpoint.state is CheckpointState.COMPLETED
        for checkpoint in state.checkpoints.get(trial.id, {}).values()
        if (checkpoint.run_id, checkpoint.attempt) == (attempt.run_id, attempt.number)
    )
    weight = STALLED_BY_TIME if verdict.end is End.TIMEOUT else 1
    stalled = trial.stalled + (weight if run.intent is Intent.GO and _free(verdict) else 0)
    return replace(trial, lost=lost, stalled=0 if further else stalled)


def _free(verdict: Verdict) -> bool:
    """Whether the trial simply goes on, as often as it may be."""
    return verdict.end.resumes or verdict.end in (End.LOST, End.STOPPED)


def _stuck(trial: Trial, verdict: Verdict) -> str:
    """Why it makes no sense to go on, if so: the trial is begun again and again and never gets further."""
    if trial.stalled < MAX_STALLED or not _free(verdict):
        return ""
    return (
        "no progress, run after run: none of the last ones left a checkpoint further on than where it began; save checkpoints "
        f"more often, or ask for more time (the end of the last run: {verdict.reason})"
    )


def _after_run(
    experiment: ExperimentState, trial: Trial, verdict: Verdict, event: events.AttemptEnded, decision: Decision
) -> None:
    """What the end of its run means for the trial."""
    end, reason, at = verdict.end, verdict.reason, event.at
    if end is End.COMPLETED and not trial.state.stopping and _goes_on(trial):
        decision.rows.append(trial)
    elif end is End.COMPLETED:
        trial = _warned(trial, experiment)
        _close(trial, State.COMPLETED if not trial.state.stopping else trial.state.end, trial.reason, at, decision)
    elif trial.state.stopping:
        _close(trial, trial.state.end, trial.reason, at, decision)
    elif experiment.row.unmanaged:
        _close(trial, State.ERROR, reason or end.value, at, decision)  # nobody will submit it again
    elif end is End.INVALID_HP or verdict.permanent:
        _close(trial, State.ERROR, reason, at, decision)
    elif end.counts_as_restart:
        restarts = trial.restarts + 1
        limit = experiment.config.max_restarts
        if restarts > limit:
            _close(replace(trial, restarts=limit), State.ERROR, f"{reason} (after {limit} restarts)", at, decision)
        else:
            trial = _resting(replace(trial, restarts=restarts, early_exit=""), restarts, event)
            decision.rows.append(replace(trial, reason=f"restarted: {reason}"))
    elif trial.lost >= verdict.tries:
        _close(trial, State.ERROR, f"{trial.lost} runs in a row ended without training: {reason}", at, decision)
    elif why := _stuck(trial, verdict):
        _close(trial, State.ERROR, why, at, decision)
    elif end is End.CANCELLED:
        paused = replace(trial, state=State.PAUSED, reason=reason)
        others = [experiment.trials[index] for index in experiment.open if index != trial.index]
        decision.rows += [paused, paused_with(experiment.row, [paused, *others])]
    elif end in (End.LOST, End.LAUNCH_FAILED):
        decision.rows.append(_resting(trial, trial.lost, event))
    else:
        decision.rows.append(trial)
    if waits_for_searcher(trial):
        decision.then.append(events.Parked(trial.id, at))
    decision.then.append(events.Schedule(at))


def _resting(trial: Trial, failures: int, event: events.AttemptEnded) -> Trial:
    """What fails at once shall not use up all its chances within seconds, nor keep the scheduler busy."""
    if not event.rest:
        return trial
    return replace(trial, not_before=event.at + min(MAX_REST, event.rest * 2 ** max(0, failures - 1)))


def _goes_on(trial: Trial) -> bool:
    """Whether a run that finished has only done what it knew of: the trial waits for its searcher, or may train longer by now."""
    return waits_for_searcher(trial) or trial.search.get("granted_in") == trial.runs


def _warned(trial: Trial, experiment: ExperimentState) -> Trial:
    """Said of a trial that finished and cannot be compared with the others."""
    searcher = experiment.config.searcher
    if trial.best_validation is not None or trial.reason or searcher.name == "single" or experiment.row.unmanaged:
        return trial
    return replace(trial, reason=f"finished without ever reporting a usable {searcher.metric}, the searcher's metric")


def _close(trial: Trial, how: State, reason: str, at: float, decision: Decision) -> None:
    progress = 1.0 if how is State.COMPLETED else trial.progress
    closed = replace(trial, state=how, reason=reason, ended_at=at, progress=progress)
    decision.rows.append(closed)
    decision.then.append(events.TrialClosed(trial.id, exit_of(closed), at))


def tick(state: ClusterState, event: events.Tick) -> Decision:
    """Kill runs that were asked to stop and did not in time; wake trials that have rested."""
    decision = Decision()
    for trial_id, until in state.resting.items():
        if event.at >= until:
            trial = state.trial(trial_id)
            assert trial is not None
            decision.rows.append(replace(trial, not_before=None))
    if decision.rows:
        decision.then.append(events.Schedule(event.at))
    for run in state.runs.values():
        deadline = _deadline(state, run)
        if deadline is not None and event.at >= deadline:
            index = state.trial_index[run.trial_id][1]
            reason = f"{run.intent_reason}: did not stop within its preemption_timeout"
            kill_run(state.experiments[run.experiment_id], index, reason, decision)
    return decision


def next_deadline(state: ClusterState) -> float | None:
    """When ``tick`` next has something to do; None: never, as things stand."""
    deadlines = [d for run in list(state.runs.values()) if (d := _deadline(state, run)) is not None]
    return min([*deadlines, *list(state.resting.values())], default=None)


def _deadline(state: ClusterState, run: Run) -> float | None:
    if run.intent is not Intent.STOP or run.stopping_since is None:
        return None
    return run.stopping_since + preemption_timeout(state.experiments[run.experiment_id].config)


def preemption_timeout(config: ExperimentConfig) -> float:
    return float(config.preemption_timeout or PREEMPTION_TIMEOUT)
