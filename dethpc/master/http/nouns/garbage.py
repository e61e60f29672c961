"""What the policies of experiments would delete, and following them now."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Query

from dethpc.domain.facts import Checkpoint
from dethpc.domain.states import CheckpointState, State
from dethpc.engine.garbage import Policy
from dethpc.master.experiments.needed import saved_by_rendered
from dethpc.master.http.access import Owner, Reading, TheInstallation, ThePolicies
from dethpc.master.http.router import new_router
from dethpc.master.http.wire import garbage as wire
from dethpc.state import queries

router = new_router(tags=["checkpoints"])

Count = Annotated[int, Query(ge=0)]
Ids = Annotated[tuple[int, ...], Query(alias="experimentIds")]


@router.get("/experiments/{experiment_id}/preview_gc")
def preview(
    experiment_id: int,
    save_experiment_best: Count,
    save_trial_best: Count,
    save_trial_latest: Count,
    connection: Reading,
    policies: ThePolicies,
    who: Owner,
) -> wire.Preview:
    """The checkpoints that this policy would delete."""
    policy = Policy(save_experiment_best, save_trial_best, save_trial_latest)
    experiment, found = policies.preview(experiment_id, policy)
    origins = queries.checkpoint_origins(connection, found)
    return wire.Preview(
        metric_name=experiment.metric, checkpoints=[wire.Unwanted.of(each, origins[each.uuid]) for each in found]
    )


@router.get("/api/v1/garbage")
def prunable(connection: Reading, policies: ThePolicies, who: Owner, ids: Ids = ()) -> wire.Prunables:
    """What the policies of experiments that have ended would delete: of all, or of those that are named."""
    found = []
    for experiment_id in ids or queries.ids_of_ended(connection):
        experiment, checkpoints = policies.preview(experiment_id)
        if checkpoints:
            count, size = len(checkpoints), sum(map(_size, checkpoints))
            found.append(wire.Prunable(id=experiment.id, name=experiment.name, checkpoints=count, size=size))
    return wire.Prunables(experiments=found)


@router.post("/api/v1/garbage")
def prune(request: wire.PruneRequest, policies: ThePolicies, who: Owner) -> dict[str, Any]:
    """Follow the policies of these experiments now."""
    policies.follow(request.experiment_ids)
    return {}


@router.post("/api/v1/garbage/unknown")
def unknown(request: wire.Uuids, connection: Reading, installation: TheInstallation, who: Owner) -> wire.Uuids:
    """Those that no experiment and no rendered run has, or had and deleted with all its files."""
    known = {
        row.uuid
        for row, origin in queries.with_origins(connection, request.checkpoint_uuids)
        if origin is not State.DELETED and (row.state is not CheckpointState.DELETED or row.removing)
    }
    known |= saved_by_rendered(installation.home)
    return wire.Uuids(checkpoint_uuids=[uuid for uuid in request.checkpoint_uuids if uuid not in known])


def _size(checkpoint: Checkpoint) -> int:
    return sum(checkpoint.resources.values())
