"""What scripts outside the cluster send, and what they get."""

from __future__ import annotations

from typing import Annotated, Any

from dethpc.master.http.models import Plain, Shallow, Wire
from dethpc.master.http.wire.trial import Trial


class NewTrial(Wire):
    experiment_id: int = 0
    hparams: Annotated[dict[str, Any] | None, Shallow] = None
    unmanaged: bool | None = None


class PutTrial(Wire):
    create_trial_request: NewTrial
    external_trial_id: str = ""


class BeginRequest(Wire):
    trial_id: int | None = None
    resume: bool | None = None


class Begun(Wire):
    trial_run_id: int
    latest_checkpoint: str | None
    steps_completed: int


class TrialPatch(Wire):
    state: str = ""


class TrialAnswer(Wire):
    trial: Trial


class ReportedMetrics(Wire):
    avg_metrics: Annotated[dict[str, Any] | None, Shallow] = None
    batch_metrics: Annotated[list[Any] | None, Shallow] = None


class TrialMetrics(Wire):
    """One report. Profilers give no ``steps_completed``: theirs go with the time."""

    metrics: ReportedMetrics
    trial_run_id: int | None = None
    steps_completed: int | None = None
    report_time: str | None = None


class MetricsRequest(Wire):
    metrics: TrialMetrics
    group: str = "training"


class Progress(Wire):
    progress: float = 0.0


class EarlyExit(Wire):
    reason: str = "EXITED_REASON_UNSPECIFIED"


class Status(Wire):
    state: str = ""


class PrepareRequest(Wire):
    run_id: int = 0


class Prepared(Wire):
    storage_id: int | None = None


class Metadata(Wire):
    metadata: Annotated[Plain, Shallow] = None


class TaskLog(Wire):
    """A line of output. Determined spells these names with underscores."""

    task_id: str = ""
    rank: str | int | None = None
    log: str = ""

    model_config = {**Wire.model_config, "alias_generator": None}


class Alert(Wire):
    title: str = ""
    description: str = ""
    level: str = ""


class AlertRequest(Wire):
    data: Alert
    experiment_id: int = 0
    trial_id: int | None = None
