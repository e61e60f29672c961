"""The copies of rows that each report makes, with every field written out: ``replace``, which is for any row and change, takes
more than twice as long. Each is held by a test to what ``dataclasses.replace`` makes."""

from __future__ import annotations

from dethpc.domain.facts import Attempt, Trial


def measured(trial: Trial, steps_completed: int, early_exit: str) -> Trial:
    """``trial`` after a report of metrics."""
    return Trial(
        trial.id,
        trial.experiment_id,
        trial.index,
        trial.hparams,
        trial.seed,
        trial.state,
        trial.created_at,
        trial.request_id,
        trial.search,
        trial.restarts,
        trial.runs,
        trial.lost,
        steps_completed,
        trial.latest_checkpoint,
        trial.source_checkpoint,
        trial.best_validation,
        trial.latest_validation,
        trial.best_validation_steps,
        trial.progress,
        trial.started_at,
        trial.ended_at,
        trial.reason,
        early_exit,
        trial.metadata,
        trial.status,
        trial.stalled,
        trial.not_before,
        trial.warning,
        trial.external_id,
        trial.image,
    )


def validated(
    trial: Trial, latest_validation: float, best_validation: float | None, best_validation_steps: int | None
) -> Trial:
    """``trial`` after a report of its searcher's metric."""
    return Trial(
        trial.id,
        trial.experiment_id,
        trial.index,
        trial.hparams,
        trial.seed,
        trial.state,
        trial.created_at,
        trial.request_id,
        trial.search,
        trial.restarts,
        trial.runs,
        trial.lost,
        trial.steps_completed,
        trial.latest_checkpoint,
        trial.source_checkpoint,
        best_validation,
        latest_validation,
        best_validation_steps,
        trial.progress,
        trial.started_at,
        trial.ended_at,
        trial.reason,
        trial.early_exit,
        trial.metadata,
        trial.status,
        trial.stalled,
        trial.not_before,
        trial.warning,
        trial.external_id,
        trial.image,
    )


def told(
    attempt: Attempt,
    applied_seq: int,
    applied_offset: int,
    first_at: float | None,
    first_steps: int | None,
    last_at: float | None,
    last_steps: int | None,
    saved_at: float | None,
    saving: float | None,
) -> Attempt:
    """``attempt`` after reports."""
    return Attempt(
        attempt.run_id,
        attempt.number,
        attempt.experiment_id,
        attempt.task_id,
        attempt.state,
        attempt.started_at,
        attempt.ended_at,
        applied_seq,
        applied_offset,
        attempt.resumed_from,
        attempt.resumed_steps,
        attempt.void_after,
        attempt.nodes,
        attempt.end,
        attempt.reason,
        first_at,
        first_steps,
        last_at,
        last_steps,
        saved_at,
        saving,
        attempt.kept_at,
    )
