"""Routes that export experiments to other installations and import them. Not part of Determined's API."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from fastapi.responses import StreamingResponse
from pydantic import PlainSerializer

from dethpc.domain import facts
from dethpc.domain.secrets import masked
from dethpc.errors import Refused
from dethpc.master.durable import contexts
from dethpc.master.experiments.archives import exporting
from dethpc.master.http.access import Owner, TheCopies, TheCreator, TheInstallation, TheStore
from dethpc.master.http.models import Wire
from dethpc.master.http.nouns.contexts import File
from dethpc.master.http.nouns.experiments import Experiment, one
from dethpc.master.http.router import new_router


class LookRequest(Wire):
    archive: str  # an absolute path that the master can read


class ArchiveSummary(Wire):
    """``checkpoints``: those whose files the archive has; ``known``: those of its uuids that others have here. ``taken_in``: the
    experiment that this archive has become here already. ``cluster_id``: of this installation."""

    experiment_id: int
    cluster_name: str
    name: str
    trials: int
    checkpoints: list[str] = []
    known: list[str] = []
    taken_in: int | None = None
    cluster_id: str = ""
    checkpoint_storage: Annotated[dict[str, Any], PlainSerializer(masked)]


class TakeInRequest(LookRequest):
    """``copied``: the checkpoints of the archive whose files are in this installation's storage, and what they are called there.
    ``experiment_uuid``: the experiment that their manifests name. ``again``: also where it was taken in before."""

    copied: dict[str, str] = {}
    experiment_uuid: str = ""
    again: bool = False


class TakenIn(Wire):
    """``before``: it was taken in by an earlier request, and nothing was done."""

    experiment: Experiment
    before: bool = False


class RenderRequest(Wire):
    config: str = ""
    model_definition: list[File] | None = None


class Rendered(Wire):
    script: str
    run: str
    run_directory: str
    notes: list[str] = []


class ImportRequest(Wire):
    run_directory: str


class Imported(Wire):
    experiment: Experiment


router = new_router(prefix="/api/v1/experiments", tags=["experiments"])


@router.get("/{experiment_id}/export")
def export(experiment_id: int, store: TheStore, installation: TheInstallation, who: Owner) -> StreamingResponse:
    """A zip file of all but checkpoints."""
    name = f'attachment; filename="experiment-{experiment_id}.zip"'
    pieces = exporting.archive(installation, store, experiment_id)
    return StreamingResponse(pieces, media_type="application/zip", headers={"Content-Disposition": name})


@router.post("/import-archive/look")
def look(request: LookRequest, copies: TheCopies, who: Owner) -> ArchiveSummary:
    """What such a zip file holds; nothing changes."""
    archive, known_uuids = copies.look(_path(request.archive))
    before = copies.taken_in(_path(request.archive))
    row = archive.past.of(facts.Experiment)[0]
    return ArchiveSummary(
        experiment_id=row.id,
        cluster_name=str(archive.about.get("cluster_name") or ""),
        name=row.name,
        trials=len(archive.past.of(facts.Trial)),
        checkpoints=archive.uuids,
        known=known_uuids,
        taken_in=None if before is None else before.id,
        cluster_id=copies.cluster_id,
        checkpoint_storage=copies.storage,
    )


@router.post("/import-archive")
def take_in(request: TakeInRequest, store: TheStore, copies: TheCopies, who: Owner) -> TakenIn:
    """Make an experiment of it, or say which one it is: a client that got no answer may ask again."""
    path = _path(request.archive)
    before = None if request.again else copies.taken_in(path)
    row = before or copies.take_in(path, who.owner, request.copied, request.experiment_uuid, request.again)
    is_another = before is not None or (bool(request.experiment_uuid) and row.queue_id != request.experiment_uuid)
    with store.read() as connection:
        return TakenIn(experiment=one(connection, row.id), before=is_another)


def _path(text: str) -> Path:
    """Raises Refused."""
    if not text.startswith("/") or "\0" in text:
        raise Refused(f"archive must be an absolute path that the master can read, not {text!r}")
    return Path(text)


standalone_routes = new_router(prefix="/api/v1/experiments", tags=["runs"])


@standalone_routes.post("/render")
def render(request: RenderRequest, creator: TheCreator, who: Owner) -> Rendered:
    """A batch script that ``sbatch`` runs without a master, and the run directory it belongs to."""
    script, run_dir, notes = creator.render(who.owner, request.config, contexts.pack(request.model_definition or []))
    return Rendered(script=script, run=run_dir.name, run_directory=str(run_dir), notes=notes)


@standalone_routes.post("/import")
def import_run(request: ImportRequest, store: TheStore, creator: TheCreator, who: Owner) -> Imported:
    """Make an experiment of a run that such a script has finished."""
    fact = creator.import_run(Path(request.run_directory))
    with store.read() as connection:
        return Imported(experiment=one(connection, fact.id))
