"""Experiments that move between installations. Ours, beside Determined's API."""

from __future__ import annotations

from pathlib import Path

from fastapi.responses import StreamingResponse

from dethpc.domain.facts import Experiment, Trial
from dethpc.errors import Refused
from dethpc.master.experiments import exporting
from dethpc.master.http.routes.access import Owner, TheCopies, TheInstallation, TheStore
from dethpc.master.http.routes.experiments import one
from dethpc.master.http.routes.router import Router
from dethpc.master.http.wire import copies as wire

router = Router(prefix="/api/v1/experiments", tags=["experiments"])


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
    row = found.past.of(Experiment)[0]
    return wire.Found(
        experiment_id=row.id,
        cluster_name=str(found.about.get("cluster_name") or ""),
        name=row.name,
        trials=len(found.past.of(Trial)),
        checkpoints=found.uuids,
        known=known,
        checkpoint_storage=copies.storage,
    )


@router.post("/import-archive")
def take_in(request: wire.TakeInRequest, store: TheStore, copies: TheCopies, who: Owner) -> wire.TakenIn:
    """Make an experiment of it."""
    row = copies.take_in(_path(request.archive), who.owner, request.copied)
    with store.read() as connection:
        return wire.TakenIn(experiment=one(connection, row.id))


def _path(text: str) -> Path:
    """Raises Refused."""
    if not text.startswith("/") or "\0" in text:
        raise Refused(f"archive: found {text!r}; allowed: an absolute path that the master can read")
    return Path(text)
