"""What becomes of a trial when its run starts, reports and ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import takewhile

from dethpc.config.source import read
from dethpc.domain.attempts.log_policies import EXCLUDE_NODE, LogMatch, Noted, against_retrying
from dethpc.domain.facts import Attempt, Row, Run, Trial
from dethpc.domain.reports import Report
from dethpc.domain.states import AttemptState, CheckpointState, End, Intent, State
from dethpc.domain.text.messages import alike
from dethpc.engine import checkpoints, events, first_trial, reports
from dethpc.engine.decision import Decision
from dethpc.engine.ends import Verdict
from dethpc.engine.nodes import may_heal_elsewhere
from dethpc.engine.queueing.jobs import ExperimentState, waits_for_searcher
from dethpc.engine.search import paused_with
from dethpc.engine.state import ClusterState
from dethpc.engine.stop import close_trial
from dethpc.errors import NotFound, Refused

MAX_STALLED = 12
"""How many attempts in a row may end, through no fault of the trial, without a checkpoint beyond the one they started from."""

MAX_DAMAGED = 12
"""How many checkpoints of a trial may turn out to be damaged: what takes its place in such a storage is no better."""

STALLED_BY_TIME = 4
"""How many of these an attempt counts for that reached its time limit: the next would reach it as well."""

NO_RETRY = "trial failed and matched logs to a don't retry policy"
"""Determined's words, which scripts look for."""

MAX_REST = 300.0
"""The longest delay after a failure, in seconds."""

AWAY = "it waits for its storage: "
"""How the reason begins of a trial that rests until that may be back."""


class TrialRun:
    """A live run of a trial, and what happens to it means for the trial."""

    def __init__(self, state: ClusterState, run: Run) -> None:
        trial = state.trial(state.tasks[run.task_id].trial_id or 0)
        assert trial is not None
        self._state, self._run, self._trial = state, run, trial
        self._experiment = state.experiments[trial.experiment_id]

    @property
    def early_exit(self) -> str:
        """What user code said why it ends."""
        return self._trial.early_exit

    @property
    def preemption_timeout(self) -> float | None:
        """Seconds that it has for its checkpoint after it was asked to stop; None: as usual."""
        return self._experiment.config.preemption_timeout

    def refused(self, message: str, at: float) -> Decision:
        """The scheduler would refuse every other trial of the experiment as well, but each says so itself."""
        decision = Decision()
        _close(self._experiment, self._trial, State.ERROR, message, at, decision)
        return decision

    def started(self, event: events.AttemptStarted) -> list[Row]:
        trial = self._trial
        own = self._state.checkpoints.get(trial.id, {})
        return [
            *_void_after_resume(self._state, self._run, trial, event),
            replace(
                trial,
                started_at=trial.started_at or event.at,
                ended_seconds=trial.ended_seconds if trial.started_at else 0.0,
                steps_completed=event.resumed_steps,
                progress=_progress_from(trial, event.resumed_steps),
                latest_checkpoint=event.resumed_from if event.resumed_from in own else None,
                early_exit="",
                reason="" if trial.reason.startswith(AWAY) else trial.reason,
            ),
        ]

    def reported(self, attempt: Attempt, accepted: Sequence[Report]) -> Decision:
        decision = Decision()
        trial = reports.taken_in(self._state, self._trial, attempt, accepted, decision)
        trial = first_trial.trained(self._experiment, trial, accepted, decision)
        if trial != self._trial:
            decision.rows.append(trial)
            decision.then.append(events.Advanced(trial.experiment_id, accepted[-1].at))
        return decision

    def queued_again(
        self, attempt: Attempt | None, verdict: Verdict, event: events.AttemptEnded
    ) -> tuple[str, list[Row]]:
        """Why it makes no sense that the same job starts once more, if so; and what changes."""
        trial = _weighed(self._state, _noting(self._trial, event.matched), self._run, attempt, verdict)
        why = _stuck(trial, verdict, _damaged(self._state, trial))
        if why:
            trial = replace(trial, state=State.STOPPING_ERROR, reason=why)
        return why, [trial] if trial != self._trial else []

    def ended(self, attempt: Attempt | None, verdict: Verdict, event: events.AttemptEnded) -> Decision:
        decision = Decision()
        trial = _weighed(self._state, _noting(self._trial, event.matched), self._run, attempt, verdict)
        if verdict.end is End.COMPLETED and (lost := checkpoints.lost(self._state, trial)):
            loss = f"finished, but {lost} of its checkpoints could not be saved: their storage was away"
            verdict = verdict._replace(reason="; ".join(filter(None, [loss, verdict.reason])))
        _after_run(self._state, trial, verdict, event, decision)
        return decision


def _progress_from(trial: Trial, steps: int) -> float:
    """Of a trial that goes on from so many of its steps: what was trained after them is trained again."""
    if not trial.steps_completed:
        return trial.progress if steps else 0.0
    return trial.progress * min(1.0, steps / trial.steps_completed)


def _void_after_resume(state: ClusterState, run: Run, trial: Trial, event: events.AttemptStarted) -> list[Attempt]:
    """Earlier attempts with what they reported after the checkpoint that this one resumes from declared void.

    A later attempt does that part of the training again, so its reports would otherwise be counted twice.
    """
    earlier = state.attempts.get(run.task_id, [])
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


def _noting(trial: Trial, matched: Sequence[LogMatch]) -> Trial:
    """The trial with what lines of its log mean beyond this attempt."""
    return replace(trial, search=Noted.of(trial.search).after(matched).into(trial.search)) if matched else trial


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


def _damaged(state: ClusterState, trial: Trial) -> int:
    return sum(c.state is CheckpointState.ERROR for c in state.checkpoints.get(trial.id, {}).values())


def _stuck(trial: Trial, verdict: Verdict, damaged: int) -> str:
    """Why it makes no sense to go on, if so: the trial is begun again and again and never gets further. ``damaged``: how many of
    its checkpoints are."""
    if verdict.end is End.DAMAGED_CHECKPOINT and damaged >= MAX_DAMAGED:
        return (
            f"{damaged} of its checkpoints are damaged: their storage does not keep them (the last: {verdict.reason})"
        )
    if trial.stalled < MAX_STALLED or not _free(verdict):
        return ""
    return (
        "no progress, run after run: none of the last ones saved a checkpoint beyond the one it started from; save checkpoints "
        f"more frequently, or ask for more time (how the last run ended: {verdict.reason})"
    )


def _after_run(
    state: ClusterState, trial: Trial, verdict: Verdict, event: events.AttemptEnded, decision: Decision
) -> None:
    """What the end of its run means for the trial."""
    experiment = state.experiments[trial.experiment_id]
    attempts = state.attempts.get(state.runs[event.run_id].task_id, ())
    end, reason, at = verdict.end, verdict.reason, event.at
    close = _closing(experiment, verdict, event, decision)
    if end is End.COMPLETED and not trial.state.stopping and _goes_on(trial):
        decision.rows.append(trial)
    elif end is End.COMPLETED:
        trial = _warned(replace(trial, reason=reason) if reason else trial, experiment)
        close(trial, State.COMPLETED if not trial.state.stopping else trial.state.end, trial.reason)
    elif trial.state.stopping:
        close(trial, trial.state.end, trial.reason)
    elif not experiment.row.kind.submitted:
        close(trial, State.ERROR, reason or end.value)  # nobody will submit it again
    elif end is End.INVALID_HP or verdict.permanent:
        close(trial, State.ERROR, reason)
    elif end.counts_as_restart:
        _after_failure(experiment, trial, verdict, event, attempts, decision)
    elif trial.lost >= verdict.tries:
        close(trial, State.ERROR, f"{trial.lost} runs in a row ended without training: {reason}")
    elif why := _stuck(trial, verdict, _damaged(state, trial)):
        close(trial, State.ERROR, why)
    elif end is End.CANCELLED:
        paused = replace(trial, state=State.PAUSED, reason=reason)
        others = [experiment.trials[index] for index in experiment.open if index != trial.index]
        decision.rows += [paused, paused_with(experiment.row, [paused, *others])]
    elif end in (End.LOST, End.LAUNCH_FAILED):
        decision.rows.append(_resting(trial, trial.lost, event))
    elif end is End.STORAGE_AWAY:
        away = takewhile(lambda attempt: attempt.end is End.STORAGE_AWAY, reversed(attempts[:-1]))
        decision.rows.append(_resting(replace(trial, reason=f"{AWAY}{reason}"), 1 + sum(1 for _ in away), event))
    else:
        decision.rows.append(replace(trial, reason=reason) if end is End.DAMAGED_CHECKPOINT else trial)
    if waits_for_searcher(trial):
        decision.then.append(events.Parked(trial.id, at))


def _after_failure(
    experiment: ExperimentState,
    trial: Trial,
    verdict: Verdict,
    event: events.AttemptEnded,
    attempts: Sequence[Attempt],
    decision: Decision,
) -> None:
    """The trial rests and starts again, as often as it may; what fails alike before its first report would only do so again, and
    is left at that unless its owner has said a number of restarts."""
    restarts, limit = trial.restarts + 1, experiment.config.max_restarts
    close = _closing(experiment, verdict, event, decision)
    elsewhere = any(match.action == EXCLUDE_NODE for match in event.matched) or may_heal_elsewhere(event.report)
    untrained = all(a.first_at is None for a in attempts) and not elsewhere
    if against := against_retrying(event.matched):
        reason = f"{verdict.reason} ({NO_RETRY}: {against.cause})"
        close(trial, State.ERROR, reason)
    elif (
        1 < restarts <= limit  # the failures before it was continued do not count
        and untrained
        and _failed_alike(attempts, verdict)
        and not _says_restarts(experiment.row.original_config)
    ):
        reason = (
            f"{verdict.reason} (failed twice in the same way before reporting anything, so it was not restarted again; "
            "setting max_restarts restarts it as often)"
        )
        close(trial, State.ERROR, reason)
    elif restarts > limit:
        reason = f"{verdict.reason} (after {limit} restarts)"
        close(replace(trial, restarts=limit), State.ERROR, reason)
    else:
        trial = _resting(replace(trial, restarts=restarts, early_exit=""), restarts, event)
        trial = replace(trial, reason=f"restarted: {verdict.reason}")
        decision.rows.append(first_trial.held_by(experiment, trial) if untrained else trial)


@lru_cache(maxsize=64)
def _says_restarts(original_config: str) -> bool:
    """Whether its owner's own text has ``max_restarts``."""
    return "max_restarts" in original_config and "max_restarts" in read(original_config, "config")[0].data


def _failed_alike(attempts: Sequence[Attempt], verdict: Verdict) -> bool:
    """Whether the last of the attempts, which ended with this verdict, and the one before it failed in the same way."""
    if len(attempts) < 2 or attempts[-2].end is not verdict.end:
        return False
    nodes = {name for attempt in attempts[-2:] for name in attempt.nodes}
    return alike(attempts[-2].reason, verdict.reason, nodes)


def _resting(trial: Trial, failures: int, event: events.AttemptEnded) -> Trial:
    """What fails at once shall not use up all its chances within seconds, nor keep the scheduler busy."""
    if not event.rest:
        return trial
    return replace(trial, not_before=event.at + min(MAX_REST, event.rest * 2 ** max(0, failures - 1)))


def rested(until: float, at: float) -> bool:
    """Whether a trial that rests ``until`` may go on at ``at``. No rest is longer than ``MAX_REST``: a clock was set back."""
    return at >= until or until - at > MAX_REST


def _goes_on(trial: Trial) -> bool:
    """Whether a run that finished has only done what it knew of: the trial waits for its searcher, or may train longer by now."""
    return waits_for_searcher(trial) or trial.search.get("granted_in") == trial.runs


def _warned(trial: Trial, experiment: ExperimentState) -> Trial:
    """Said of a trial that finished and cannot be compared with the others."""
    searcher = experiment.config.searcher
    if (
        trial.best_validation is not None
        or trial.reason
        or searcher.name == "single"
        or not experiment.row.kind.submitted
    ):
        return trial
    return replace(trial, reason=f"finished without reporting {searcher.metric}, the searcher's metric, as a number")


def _close(experiment: ExperimentState, trial: Trial, how: State, reason: str, at: float, decision: Decision) -> None:
    progress = 1.0 if how is State.COMPLETED else trial.progress
    close_trial(experiment, replace(trial, progress=progress), how, reason, at, decision)


def _closing(
    experiment: ExperimentState, verdict: Verdict, event: events.AttemptEnded, decision: Decision
) -> Callable[[Trial, State, str], None]:
    """What closes the trial with its attempt: it ended when that did, and what follows begins now."""

    def close(trial: Trial, how: State, reason: str) -> None:
        _close(experiment, replace(trial, ended_at=verdict.at), how, reason, event.at, decision)

    return close


def early_exit(state: ClusterState, event: events.EarlyExit) -> Decision:
    trial = state.trial(event.trial_id)
    if trial is None or trial.state.terminal:
        raise Refused(f"trial {event.trial_id} has already ended")
    return Decision([replace(trial, early_exit=event.reason)])


def describe(state: ClusterState, event: events.DescribeTrial) -> Decision:
    trial = state.trial(event.trial_id)
    if trial is None:
        raise NotFound(f"no trial {event.trial_id}")
    return Decision([replace(trial, **event.changes.given())])
