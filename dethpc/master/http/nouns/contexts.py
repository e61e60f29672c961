"""Context directories of experiments: the archive, its files."""

from __future__ import annotations

import base64
from pathlib import PurePosixPath

from dethpc.master.durable import contexts
from dethpc.master.experiments.code_changes import changes
from dethpc.master.http.access import Owner, Reading, TheCreator
from dethpc.master.http.models import time
from dethpc.master.http.router import new_router
from dethpc.master.http.wire import experiment as wire
from dethpc.state import queries

router = new_router(prefix="/api/v1/experiments/{experiment_id}", tags=["experiments"])


@router.get("/model_def")
def model_definition(experiment_id: int, creator: TheCreator, connection: Reading, who: Owner) -> wire.ModelDefinition:
    queries.experiment(connection, experiment_id)
    return wire.ModelDefinition(b64_tgz=base64.b64encode(creator.context(experiment_id)).decode())


@router.get("/file_tree")
def file_tree(experiment_id: int, creator: TheCreator, connection: Reading, who: Owner) -> wire.FileTree:
    queries.experiment(connection, experiment_id)
    top: list[wire.FileNode] = []
    folders: dict[str, list[wire.FileNode]] = {"": top, ".": top}
    for member in contexts.members(creator.context(experiment_id)):
        path = PurePosixPath(member.name)
        node = wire.FileNode(
            name=path.name,
            path=str(path),
            is_dir=member.isdir(),
            content_length=member.size,
            modified_time=time(member.mtime),
        )
        if member.isdir():
            folders[str(path)] = node.files
        folders.get(str(path.parent), top).append(node)
    return wire.FileTree(files=top)


@router.post("/file")
def file(
    experiment_id: int, request: wire.FileRequest, creator: TheCreator, connection: Reading, who: Owner
) -> wire.FileAnswer:
    queries.experiment(connection, experiment_id)
    most = -1 if request.length is None else max(request.length, 0)
    content = contexts.content(creator.context(experiment_id), request.path, most)
    return wire.FileAnswer(file=base64.b64encode(content).decode())


@router.get("/code_changes")
def code_changes(
    experiment_id: int, against: int, creator: TheCreator, connection: Reading, who: Owner
) -> wire.CodeChanges:
    """Ours: what is different in the files of this experiment from those of the experiment ``against``."""
    for id in (experiment_id, against):
        queries.experiment(connection, id)
    found, more = changes(creator.context(against), creator.context(experiment_id))
    told = [wire.CodeChange(path=each.path, kind=each.kind, diff=each.diff, why=each.why) for each in found]
    return wire.CodeChanges(against=against, changes=told, more=more)
