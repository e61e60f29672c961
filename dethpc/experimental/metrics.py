"""What trials reported."""

from __future__ import annotations

import dataclasses
import datetime
from typing import Any, Dict, Iterator, List, Optional, Sequence

from dethpc.client.session import Session
from dethpc.domain.text.times import moment


@dataclasses.dataclass
class TrialMetrics:
    """One report: the values of a ``group`` at ``steps_completed``, by run ``trial_run_id`` of the trial."""

    trial_id: int
    trial_run_id: int
    steps_completed: int
    end_time: datetime.datetime
    metrics: Dict[str, Any]
    group: str
    batch_metrics: Optional[List[Dict[str, Any]]] = None

    @property
    def total_batches(self) -> int:
        """An older name of ``steps_completed``."""
        return self.steps_completed

    @total_batches.setter
    def total_batches(self, value: int) -> None:
        self.steps_completed = value


class TrainingMetrics(TrialMetrics):
    """A report of group "training". Older code asks for it by this name."""


class ValidationMetrics(TrialMetrics):
    """A report of group "validation". Older code asks for it by this name."""


_KINDS = {"training": TrainingMetrics, "validation": ValidationMetrics}


def iter_metrics(session: Session, trial_ids: Sequence[int], group: str) -> Iterator[TrialMetrics]:
    """Reports of the trials, in order; group "": of every group. Raises NotFound."""
    params = {"trialIds": list(trial_ids), "group": group}
    for message in session.stream("/api/v1/trials/metrics/trial_metrics", params):
        yield from map(_from_wire, message["metrics"])


def of_users(session: Session, path: str, group: Optional[str]) -> Iterator[TrialMetrics]:
    """Reports of the trials that use the checkpoint or the version of a model at ``path``. Raises NotFound."""
    params = {"metricGroup": group or "", "trialSourceInfoType": "TRIAL_SOURCE_INFO_TYPE_INFERENCE"}
    yield from map(_from_wire, session.get(f"{path}/metrics", params)["metrics"])


def _from_wire(report: Dict[str, Any]) -> TrialMetrics:
    values = report["metrics"]
    return _KINDS.get(report["group"], TrialMetrics)(
        trial_id=report["trialId"],
        trial_run_id=report["trialRunId"],
        steps_completed=report["totalBatches"],
        end_time=moment(report["endTime"]),
        metrics=values.get("validation_metrics", values.get("avg_metrics")) or {},
        group=report["group"],
        batch_metrics=values.get("batch_metrics"),
    )
