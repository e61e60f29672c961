"""Runs that are submitted by hand and taken in later. Ours, beside Determined's API."""

from __future__ import annotations

from pathlib import Path

from dethpc.master.durable import contexts
from dethpc.master.http.access import Owner, TheCreator, TheStore
from dethpc.master.http.nouns.experiments import one
from dethpc.master.http.router import new_router
from dethpc.master.http.wire import standalone as wire

router = new_router(prefix="/api/v1/experiments", tags=["runs"])


@router.post("/render")
def render(request: wire.RenderRequest, creator: TheCreator, who: Owner) -> wire.Rendered:
    """A batch script that ``sbatch`` runs without a master, and the run directory it belongs to."""
    script, run_dir, notes = creator.render(who.owner, request.config, contexts.pack(request.model_definition or []))
    return wire.Rendered(script=script, run=run_dir.name, run_directory=str(run_dir), notes=notes)


@router.post("/import")
def import_run(request: wire.ImportRequest, store: TheStore, creator: TheCreator, who: Owner) -> wire.Imported:
    """Make an experiment of a run that such a script has finished."""
    fact = creator.import_run(Path(request.run_directory))
    with store.read() as connection:
        return wire.Imported(experiment=one(connection, fact.id))
