"""What a policy of checkpoints would delete, on the wire."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from dethpc.domain import facts
from dethpc.master.http.models import Plain, Wire, state, time
from dethpc.state.queries import CheckpointOrigin


class CheckpointPolicy(Wire):
    """How many checkpoints stay when the experiment has ended; None: as many as before."""

    save_experiment_best: int | None = None
    save_trial_best: int | None = None
    save_trial_latest: int | None = None


class Unwanted(Wire):
    """A checkpoint that would go. Determined's client wants these names, and counts those with a ``step`` as validated."""

    UUID: str = Field(alias="UUID")
    TrialID: int = Field(alias="TrialID")
    StepsCompleted: int = Field(alias="StepsCompleted")
    State: str = Field(alias="State")
    ReportTime: str = Field(alias="ReportTime")
    Resources: dict[str, int] = Field(alias="Resources")
    ValidationMetrics: Plain = Field(alias="ValidationMetrics")
    step: Plain

    @classmethod
    def of(cls, fact: facts.Checkpoint, origin: CheckpointOrigin) -> Unwanted:
        metrics: dict[str, Any] = origin.validation or {}
        return cls(
            UUID=fact.uuid,
            TrialID=fact.trial_id,
            StepsCompleted=fact.steps_completed,
            State=state(fact.state),
            ReportTime=time(fact.reported_at),
            Resources=fact.resources,
            ValidationMetrics=metrics,
            step={"validation": {"metrics": {"validation_metrics": metrics}}} if metrics else {},
        )


class Preview(Wire):
    metric_name: str = Field(alias="metric_name")
    checkpoints: list[Unwanted]


class Prunable(Wire):
    """What the policy of an experiment that has ended would delete now. ``size`` in bytes."""

    id: int
    name: str
    checkpoints: int
    size: int


class Prunables(Wire):
    experiments: list[Prunable]


class Uuids(Wire):
    checkpoint_uuids: list[str] = []


class PruneRequest(Wire):
    experiment_ids: list[int] = []
