"""What the reports of a trial's journal mean for it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import groupby
from typing import Any

from dethpc.config.dialects.units import trained
from dethpc.config.ranking import unranked
from dethpc.config.sections.searcher import Method
from dethpc.domain.facts import Attempt, Checkpoint, Experiment, Metric, Row, Trial
from dethpc.domain.reports import STORAGE_AWAY, WOULD_FAIL_AGAIN, Report, ReportKind
from dethpc.domain.states import CheckpointState
from dethpc.engine import checkpoints, events
from dethpc.engine.decision import Decision
from dethpc.engine.ends import CHECKPOINT_DAMAGED, SOURCE_DAMAGED
from dethpc.engine.queueing.jobs import ExperimentState
from dethpc.engine.state import ClusterState

_OVERCOME = (CHECKPOINT_DAMAGED, SOURCE_DAMAGED, STORAGE_AWAY, WOULD_FAIL_AGAIN)
"""How the reasons of an early exit begin that are none any more when the training goes on all the same."""


def taken_in(
    state: ClusterState, trial: Trial, attempt: Attempt, reports: Iterable[Report], decision: Decision
) -> Trial:
    """The trial after ``reports``; what else they bring is added to ``decision``."""
    experiment = state.experiments[trial.experiment_id]
    for plain, group in groupby(reports, _is_plain):
        if plain:
            trial = _measured(experiment, trial, attempt, group, decision)
        else:
            trial = _one_by_one(state, experiment, trial, attempt, group, decision)
    return trial


def _one_by_one(
    state: ClusterState,
    experiment: ExperimentState,
    trial: Trial,
    attempt: Attempt,
    reports: Iterable[Report],
    decision: Decision,
) -> Trial:
    for report in reports:
        take = _REPORTS.get(report.kind)
        if report.kind == ReportKind.CHECKPOINT and _is_known(state, trial, attempt, report):
            continue
        if take is not None:
            trial = take(experiment, trial, attempt, report, decision)
        elif report.kind == ReportKind.CHECKPOINT_WAITING:
            _checkpoint_waits(state, trial, attempt, report, decision)
        elif report.kind == ReportKind.CHECKPOINT_DELETED:
            trial = _checkpoint_deleted(state, trial, report, decision)
        elif report.kind == ReportKind.CHECKPOINT_DAMAGED:
            trial = _checkpoint_damaged(state, trial, attempt, report, decision)
    return trial


def _is_plain(report: Report) -> bool:
    """Whether nothing but a row follows from it: metrics that no validation is about. Most reports are such."""
    return report.kind == ReportKind.METRICS and report.data["group"] != "validation"


def _measured(
    experiment: ExperimentState, trial: Trial, attempt: Attempt, reports: Iterable[Report], decision: Decision
) -> Trial:
    """The trial after reports of metrics, however many, in one new value."""
    rows = [metric_of(trial.experiment_id, trial.id, attempt, report) for report in reports]
    decision.rows += rows
    last = max(rows, key=lambda row: row.steps_completed)
    steps = max(trial.steps_completed, last.steps_completed)
    early_exit = "" if trial.early_exit.startswith(_OVERCOME) else trial.early_exit
    length = trained(experiment.config, trial.hparams, last.metrics, last.steps_completed)
    progress = _share(experiment, trial, length)
    if (steps, early_exit, progress) == (trial.steps_completed, trial.early_exit, trial.progress):
        return trial
    return replace(trial, steps_completed=steps, early_exit=early_exit, progress=progress)


def _share(experiment: ExperimentState, trial: Trial, length: float) -> float:
    """The progress of a trial that has trained for ``length`` (NaN: it does not say), where the configuration says how long it
    trains. Code that reports its progress may be further."""
    full = experiment.config.searcher.full_length()
    return trial.progress if not full or math.isnan(length) else max(trial.progress, min(1.0, max(0.0, length / full)))


def _validation(
    experiment: ExperimentState, trial: Trial, attempt: Attempt, report: Report, decision: Decision
) -> Trial:
    trial = _measured(experiment, trial, attempt, [report], decision)
    metrics, steps = reported_values(report.data), report.data["steps_completed"]
    searcher = experiment.config.searcher
    trial = _warned(experiment, trial, metrics, steps, decision)
    if searcher.metric not in metrics:
        return trial
    value = number(metrics[searcher.metric])
    length = trained(experiment.config, trial.hparams, metrics, steps)
    if not math.isnan(length):
        decision.then.append(events.Validated(trial.id, length, value, report.at))
    return _with_value(trial, searcher, value, steps)


def _warned(
    experiment: ExperimentState, trial: Trial, metrics: Mapping[str, Any], steps: int, decision: Decision
) -> Trial:
    """The first validation that the search can do nothing with is told; one that it can use ends the warning.

    A trial that was ranked once may report other groups of metrics beside: it is not warned of again.
    """
    ranked = trial.best_validation is not None and not trial.warning
    if ranked or not experiment.row.kind.submitted:
        return trial
    warning = unranked(experiment.config, trial.hparams, metrics, steps)
    return trial if warning and trial.warning else _with_warning(experiment, trial, warning, decision)


def _with_warning(experiment: ExperimentState, trial: Trial, warning: str, decision: Decision) -> Trial:
    if trial.warning == warning:
        return trial
    row = next((row for row in reversed(decision.rows) if isinstance(row, Experiment)), experiment.row)
    if bool(row.warning) != bool(warning):
        decision.rows.append(replace(row, warning=warning))
    return replace(trial, warning=warning)


def _with_value(trial: Trial, searcher: Method, value: float, steps: int) -> Trial:
    if not math.isfinite(value):
        return trial
    best, best_steps = trial.best_validation, trial.best_validation_steps
    if best is None or (value < best if searcher.smaller_is_better else value > best):
        best, best_steps = value, steps
    return replace(trial, latest_validation=value, best_validation=best, best_validation_steps=best_steps)


def _searcher_op(
    experiment: ExperimentState, trial: Trial, attempt: Attempt, report: Report, decision: Decision
) -> Trial:
    """Code that trains by operations says itself how long it has trained, and how well."""
    length, value = number(report.data.get("length")), number(report.data.get("metric"))
    if not math.isnan(length):
        decision.then.append(events.Validated(trial.id, length, value, report.at))
        trial = replace(trial, progress=_share(experiment, trial, length))
    if math.isfinite(value):
        trial = _with_warning(experiment, trial, "", decision)
    return _with_value(trial, experiment.config.searcher, value, trial.steps_completed)


def metric_of(experiment_id: int, trial_id: int, attempt: Attempt, report: Report) -> Metric:
    """The row of a report of metrics."""
    data = report.data
    return Metric(
        attempt.run_id,
        attempt.number,
        report.seq,
        experiment_id,
        trial_id,
        data["group"],
        data["steps_completed"],
        report.at,
        reported_values(data),
    )


def reported_values(data: Mapping[str, Any]) -> dict[str, Any]:
    """What a report of metrics holds, with the values of single batches, where it has them, under ``batch_metrics``."""
    metrics: dict[str, Any] = data["metrics"]
    return {**metrics, "batch_metrics": data["batch_metrics"]} if data.get("batch_metrics") else metrics


def number(value: Any) -> float:
    """A metric's value as a float: journals spell NaN and infinities as strings; anything else that is no number is NaN."""
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan


def _checkpoint(
    experiment: ExperimentState, trial: Trial, attempt: Attempt, report: Report, decision: Decision
) -> Trial:
    data = report.data
    spool = data.get("spool")
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
            reason=checkpoints.in_spool(spool) if spool else "",
        )
    )
    return replace(trial, latest_checkpoint=str(data["uuid"]))


def _checkpoint_waits(state: ClusterState, trial: Trial, attempt: Attempt, report: Report, decision: Decision) -> None:
    """Nothing begins there before it is in its storage, or in the spool: it is listed alone. What waited in the spool has arrived
    where no reason is given."""
    existing = _checkpoints_by_uuid(state, trial, decision).get(report.data["uuid"])
    if existing is not None:
        if not report.data["why"]:
            decision.rows += checkpoints.arrived([existing])
        return
    completion = Decision()
    _checkpoint(state.experiments[trial.experiment_id], trial, attempt, report, completion)
    why = f"it waits for its storage: {report.data['why']}"[:500]
    decision.rows += [
        replace(row, state=CheckpointState.ACTIVE, reason=why) for row in completion.rows if isinstance(row, Checkpoint)
    ]


def _is_known(state: ClusterState, trial: Trial, attempt: Attempt, report: Report) -> bool:
    """Whether a checkpoint counted before the database was rebuilt without its report. It may have been deleted since."""
    row = state.checkpoints.get(trial.id, {}).get(str(report.data["uuid"]))
    return row is not None and (row.run_id, row.attempt, row.seq) == (attempt.run_id, attempt.number, report.seq)


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
    by_uuid = _checkpoints_by_uuid(state, trial, decision)
    resources = dict(report.data.get("resources") or {})
    return _with(
        checkpoints.deleted_by_trial(state, trial, by_uuid, str(report.data["uuid"]), resources), trial, decision
    )


def _checkpoint_damaged(
    state: ClusterState, trial: Trial, attempt: Attempt, report: Report, decision: Decision
) -> Trial:
    """Training code may go on all the same: only when it ends before it has trained is the damage why."""
    uuid, why = str(report.data["uuid"]), str(report.data["why"])[:500]
    rows, resumption = checkpoints.damaged(state, trial, _checkpoints_by_uuid(state, trial, decision), uuid, why)
    trial = _with(rows, trial, decision)
    if uuid != attempt.resumed_from:
        return trial
    if rows:
        return replace(trial, early_exit=f"{CHECKPOINT_DAMAGED}{why}; {resumption}")
    if (
        trial.source_checkpoint != uuid
    ):  # a copy that the search made, of another trial: see ``checkpoints.source_damaged``
        return replace(trial, early_exit=f"{CHECKPOINT_DAMAGED}{why}; {_begins(trial.source_checkpoint)}")
    resumption = (
        "this is where the trial was to begin, and it cannot begin elsewhere: create the experiment again from another"
    )
    return replace(trial, early_exit=f"{SOURCE_DAMAGED}{why}; {resumption}")


def _begins(source: str | None) -> str:
    if source is None:
        return "no earlier one of the trial that it copies is left, so it begins with new weights"
    return f"the trial begins at checkpoint {source}, which the trial that it copies had before"


def _checkpoints_by_uuid(state: ClusterState, trial: Trial, decision: Decision) -> dict[str, Checkpoint]:
    """The trial's checkpoints by uuid, those that are reported just now among them."""
    by_uuid = dict(state.checkpoints.get(trial.id, {}))
    by_uuid.update((row.uuid, row) for row in decision.rows if isinstance(row, Checkpoint))
    return by_uuid


def _with(rows: Iterable[Row], trial: Trial, decision: Decision) -> Trial:
    """The trial as ``rows`` have it; the others are added to ``decision``."""
    for row in rows:
        if isinstance(row, Trial):
            trial = row
        else:
            decision.rows.append(row)
    return trial


_REPORTS: dict[str, Callable[[ExperimentState, Trial, Attempt, Report, Decision], Trial]] = {
    ReportKind.METRICS: _validation,
    ReportKind.SEARCHER_OP: _searcher_op,
    ReportKind.CHECKPOINT: _checkpoint,
    ReportKind.PROGRESS: _progress,
    ReportKind.EARLY_EXIT: _early_exit,
    ReportKind.STATUS: _status,
    ReportKind.RUN_METADATA: _run_metadata,
}
