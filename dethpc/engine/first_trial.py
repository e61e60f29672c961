"""Holds back a search's other trials while its first one fails before any report: they would most likely fail the same way.

The wish is part of the first trial's row. It ends with the first report of any trial, with the first trial itself, or when the
owner activates the experiment; then it is not made again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from dethpc.domain.facts import Trial
from dethpc.domain.reports import Report, ReportKind
from dethpc.domain.states import State
from dethpc.engine import events
from dethpc.engine.decision import Decision
from dethpc.engine.queueing.jobs import ExperimentState, holds_others


def held_by(experiment: ExperimentState, trial: Trial) -> Trial:
    """``trial``, which failed before it had ever reported anything: it keeps the others waiting where it is the first."""
    if trial.index or len(experiment.trials) == 1 or "holds" in trial.search:
        return trial
    if any(other.steps_completed or other.state is State.COMPLETED for other in experiment.trials):
        return trial
    return replace(trial, search={**trial.search, "holds": True})


def freed(trial: Trial) -> Trial:
    """``trial`` without the wish that others wait for it."""
    return replace(trial, search={**trial.search, "holds": False}) if holds_others(trial) else trial


def trained(experiment: ExperimentState, trial: Trial, reports: Iterable[Report], decision: Decision) -> Trial:
    """``trial`` after ``reports``: the first one that tells of training lets the others go."""
    first = experiment.trials[0]
    if not experiment.held or not any(r.kind in (ReportKind.METRICS, ReportKind.CHECKPOINT) for r in reports):
        return trial
    decision.then.append(events.Schedule(max(report.at for report in reports)))
    if trial.index == 0:
        return freed(trial)
    decision.rows.append(freed(first))
    return trial
