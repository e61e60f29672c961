"""Checkpoints."""

from __future__ import annotations

import contextlib
from typing import Annotated, Any

from fastapi import Header, Query
from fastapi.responses import StreamingResponse
from sqlalchemy import Connection

from dethpc.domain.reports import ReportKind
from dethpc.errors import NotFound, Refused
from dethpc.master.experiments import checkpoint_archives
from dethpc.master.experiments.claims import Claims
from dethpc.master.http.access import (
    AnyPrincipal,
    Owner,
    Reading,
    TheCheckpoints,
    TheInstallation,
    TheStore,
    TheUnmanaged,
    may_see_experiment,
    whole,
)
from dethpc.master.http.nouns.checkpoint_lists import CheckpointList
from dethpc.master.http.router import new_router
from dethpc.master.http.wire import checkpoint as wire
from dethpc.state import queries
from dethpc.storage import globs

router = new_router(prefix="/api/v1/checkpoints", tags=["checkpoints"])
archives = new_router(prefix="/checkpoints", tags=["checkpoints"])


@router.get("")
def list_checkpoints(wanted: CheckpointList, connection: Reading, who: Owner) -> wire.Checkpoints:
    """Ours: those of every experiment."""
    return wanted.of(connection, None)


@router.get("/{uuid}")
def get_checkpoint(uuid: str, connection: Reading, who: AnyPrincipal) -> wire.CheckpointAnswer:
    fact = queries.checkpoint(connection, uuid)
    may_see_experiment(who, fact.experiment_id)
    origin = queries.checkpoint_origins(connection, [fact])[uuid]
    return wire.CheckpointAnswer(checkpoint=wire.Checkpoint.of(fact, origin))


@archives.get("/{uuid}")
def archive(
    uuid: str,
    store: TheStore,
    installation: TheInstallation,
    who: AnyPrincipal,
    accept: Annotated[str, Header()] = "",
    path: Annotated[list[str], Query(description="Globs: only files that match, and all below folders that do.")] = [],  # noqa: B006
    after: Annotated[
        str, Query(description="Only what comes after this path: to go on where an answer broke off.")
    ] = "",
) -> StreamingResponse:
    """The files in one archive: tar, or what ``Accept`` asks for."""
    with store.read() as connection:
        fact = queries.checkpoint(connection, uuid)
        may_see_experiment(who, fact.experiment_id)
        config = queries.checkpoint_origins(connection, [fact])[uuid].config
        experiment = None if who.is_owner else queries.experiment(connection, fact.experiment_id)
    claims = Claims(installation.home, installation.cluster_id)
    claim = None if experiment is None else claims.of(experiment, fact)
    kind = checkpoint_archives.kind_of(accept)

    def wanted(name: str) -> bool:
        return name > after and (not path or globs.within(name, path))

    pieces = checkpoint_archives.archive(fact, config, installation.home, kind, wanted, claim)
    name = f'attachment; filename="{uuid}.{checkpoint_archives.KINDS[kind]}"'
    return StreamingResponse(pieces, media_type=kind, headers={"Content-Disposition": name})


@router.post("")
def report_checkpoint(
    request: wire.ReportedCheckpoint, connection: Reading, unmanaged: TheUnmanaged, who: Owner
) -> dict[str, Any]:
    """A script outside the cluster stored a checkpoint."""
    _, _, trial = request.task_id.rpartition(".")
    steps = (request.metadata or {}).get("steps_completed")
    if not trial.isdecimal() or not isinstance(steps, (int, float)):
        raise Refused("a checkpoint needs the task that stored it, and steps_completed in its metadata")
    _is_nobody_elses(connection, request.uuid, int(trial))
    data = {
        "uuid": request.uuid,
        "steps_completed": whole(steps, "steps_completed"),
        "metadata": request.metadata,
        "resources": {path: whole(size, "a file's size") for path, size in (request.resources or {}).items()},
    }
    unmanaged.report(int(trial), ReportKind.CHECKPOINT, data)
    return {}


def _is_nobody_elses(connection: Connection, uuid: str, trial_id: int) -> None:
    """Its files are deleted with the trial that has it. Raises Refused."""
    with contextlib.suppress(NotFound):
        known = queries.checkpoint(connection, uuid)
        if known.trial_id != trial_id:
            raise Refused(
                f"checkpoint {uuid} is trial {known.trial_id}'s: give one that trial {trial_id} stored a uuid of its own"
            )


@router.patch("")
def patch_checkpoints(request: wire.PatchRequest, checkpoints: TheCheckpoints, who: Owner) -> dict[str, Any]:
    """Take in which files are left of checkpoints."""
    left = {
        one.uuid: {path: whole(size, "a file's size") for path, size in (one.resources.resources or {}).items()}
        for one in request.checkpoints
        if one.resources is not None
    }
    if left:
        checkpoints.set_resources(left)
    return {}


@router.delete("")
def delete_checkpoints(request: wire.DeleteRequest, checkpoints: TheCheckpoints, who: Owner) -> dict[str, Any]:
    """Delete checkpoints with their files, unless a trial that has not ended would start from one of them."""
    checkpoints.delete(request.checkpoint_uuids)
    return {}


@router.post("/rm")
def remove_files(request: wire.RemoveRequest, checkpoints: TheCheckpoints, who: Owner) -> dict[str, Any]:
    """Delete files of checkpoints; without globs only look which there are."""
    checkpoints.remove(request.checkpoint_uuids, request.checkpoint_globs)
    return {}


@router.post("/{uuid}/metadata")
def set_metadata(
    uuid: str, request: wire.MetadataRequest, store: TheStore, checkpoints: TheCheckpoints, who: Owner
) -> wire.CheckpointAnswer:
    """Replace the metadata; those in the checkpoint's own file stay as they were stored."""
    checkpoints.set_metadata(uuid, request.checkpoint.metadata or {})
    with store.read() as connection:
        fact = queries.checkpoint(connection, uuid)
        return wire.CheckpointAnswer(
            checkpoint=wire.Checkpoint.of(fact, queries.checkpoint_origins(connection, [fact])[uuid])
        )
