"""Routes that preview which checkpoints the policies of experiments would delete, and that apply these policies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends, Query
from pydantic import Field

from dethpc.domain import facts
from dethpc.domain.facts import Checkpoint
from dethpc.domain.states import CheckpointState, State
from dethpc.engine.garbage import Policy
from dethpc.master.experiments.checkpoint_uses import saved_by_rendered
from dethpc.master.http.access import Owner, Reading, TheInstallation, ThePolicies
from dethpc.master.http.models import Plain, Wire, state, time
from dethpc.master.http.router import new_router
from dethpc.state import queries
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


router = new_router(tags=["checkpoints"])

Count = Annotated[int, Query(ge=0)]
Ids = Annotated[tuple[int, ...], Query(alias="experimentIds")]


@dataclass(frozen=True, slots=True)
class PolicyQuery:
    """How many checkpoints a policy keeps."""

    save_experiment_best: Count
    save_trial_best: Count
    save_trial_latest: Count


@router.get("/experiments/{experiment_id}/preview_gc")
def preview(
    experiment_id: int,
    query: Annotated[PolicyQuery, Depends()],
    connection: Reading,
    policies: ThePolicies,
    who: Owner,
) -> Preview:
    """The checkpoints that this policy would delete."""
    policy = Policy(query.save_experiment_best, query.save_trial_best, query.save_trial_latest)
    experiment, rows = policies.preview(experiment_id, policy)
    origins = queries.checkpoint_origins(connection, rows)
    return Preview(metric_name=experiment.metric, checkpoints=[Unwanted.of(row, origins[row.uuid]) for row in rows])


@router.get("/api/v1/garbage")
def prunable(connection: Reading, policies: ThePolicies, who: Owner, ids: Ids = ()) -> Prunables:
    """What the policies of experiments that have ended would delete: of all, or of those that are named."""
    prunables = []
    for experiment_id in ids or queries.ids_of_ended(connection):
        experiment, checkpoints = policies.preview(experiment_id)
        if checkpoints:
            count, size = len(checkpoints), sum(map(_size, checkpoints))
            prunables.append(Prunable(id=experiment.id, name=experiment.name, checkpoints=count, size=size))
    return Prunables(experiments=prunables)


@router.post("/api/v1/garbage")
def prune(request: PruneRequest, policies: ThePolicies, who: Owner) -> dict[str, Any]:
    """Follow the policies of these experiments now."""
    policies.follow(request.experiment_ids)
    return {}


@router.post("/api/v1/garbage/unknown")
def unknown(request: Uuids, connection: Reading, installation: TheInstallation, who: Owner) -> Uuids:
    """Those that no experiment and no rendered run has, or had and deleted with all its files."""
    stored_uuids = {
        row.uuid
        for row, origin in queries.with_origins(connection, request.checkpoint_uuids)
        if origin is not State.DELETED and (row.state is not CheckpointState.DELETED or row.removing)
    }
    stored_uuids |= saved_by_rendered(installation.home)
    return Uuids(checkpoint_uuids=[uuid for uuid in request.checkpoint_uuids if uuid not in stored_uuids])


def _size(checkpoint: Checkpoint) -> int:
    return sum(checkpoint.resources.values())
