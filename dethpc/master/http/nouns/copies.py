"""Experiments that move between installations. Ours, beside Determined's API."""

from __future__ import annotations

from pathlib import Path

from fastapi.responses import StreamingResponse

from dethpc.domain.facts import Experiment, Trial
from dethpc.errors import Refused
from dethpc.master.experiments import exporting
from dethpc.master.http.access import Owner, TheCopies, TheInstallation, TheStore
from dethpc.master.http.nouns.experiments import one
from dethpc.master.http.router import new_router
from dethpc.master.http.wire import copies as wire

router = new_router(prefix="/api/v1/experiments", tags=["experiments"])


@router.get("/{experiment_id}/export")
def export(experiment_id: int, store: TheStore, installation: TheInstallation, who: Owner) -> StreamingResponse:
    """A zip file of all but checkpoints."""
    name = f'attachment; filename="experiment-{experiment_id}.zip"'
    pieces = exporting.archive(installation, store, experiment_id)
    return StreamingResponse(pieces, media_type="application/zip", headers={"Content-Disposition": name})


@router.post("/import-archive/look")
def look(request: wire.LookRequest, copies: TheCopies, who: Owner) -> wire.Found:
    """What such a zip file holds; nothing changes."""
    found, known = copies.look(_path(request.archive))
    before = copies.taken_in(_path(request.archive))
    row = found.past.of(Experiment)[0]
    return wire.Found(
        experiment_id=row.id,
        cluster_name=str(found.about.get("cluster_name") or ""),
        name=row.name,
        trials=len(found.past.of(Trial)),
        checkpoints=found.uuids,
        known=known,
        taken_in=None if before is None else before.id,
        cluster_id=copies.cluster_id,
        checkpoint_storage=copies.storage,
    )


@router.post("/import-archive")
def take_in(request: wire.TakeInRequest, store: TheStore, copies: TheCopies, who: Owner) -> wire.TakenIn:
    """Make an experiment of it, or say which one it is: a client that got no answer may ask again."""
    path = _path(request.archive)
    before = None if request.again else copies.taken_in(path)
    row = before or copies.take_in(path, who.owner, request.copied, request.experiment_uuid, request.again)
    is_another = before is not None or (bool(request.experiment_uuid) and row.queue_id != request.experiment_uuid)
    with store.read() as connection:
        return wire.TakenIn(experiment=one(connection, row.id), before=is_another)


def _path(text: str) -> Path:
    """Raises Refused."""
    if not text.startswith("/") or "\0" in text:
        raise Refused(f"archive must be an absolute path that the master can read, not {text!r}")
    return Path(text)
