"""Routes of the context directories of experiments: the archive, its files, and differences between experiments."""

from __future__ import annotations

import base64
from pathlib import PurePosixPath
from typing import Any, Literal

from sqlalchemy import Connection

from dethpc.domain.roles import Role
from dethpc.master.durable import contexts
from dethpc.master.experiments.code_changes import changes
from dethpc.master.experiments.create import Creator
from dethpc.master.http.access import EditorSomewhere, Reading, TheCreator, TheInstallation, Viewer
from dethpc.master.http.auth import Principal
from dethpc.master.http.models import Wire, time
from dethpc.master.http.router import new_router
from dethpc.state import queries
from dethpc.state.queries import placement


class File(Wire):
    """One member of a context directory. ``content`` is base64; ``type`` the tar type flag's code."""

    path: str
    type: int = ord("0")
    content: str = ""
    mtime: int = 0
    mode: int = 0o644
    uid: int = 0
    gid: int = 0


class ModelDefinition(Wire):
    b64_tgz: str


class FileNode(Wire):
    """A file or directory of a context directory."""

    name: str
    path: str
    is_dir: bool
    content_length: int
    content_type: str = ""
    modified_time: str
    files: list[FileNode] = []


class FileTree(Wire):
    files: list[FileNode]


class FileRequest(Wire):
    """``length``: ours, at most so many bytes from its beginning."""

    path: str = ""
    length: int | None = None


class FileAnswer(Wire):
    file: str  # base64


class CodeChange(Wire):
    """``diff``: a unified one; empty where ``why`` says why there is none."""

    path: str
    kind: Literal["added", "removed", "changed"]
    diff: str
    why: str


class CodeChanges(Wire):
    """Ours: how the context directory of an experiment differs from that of ``against``. ``more``: changes that are not told."""

    against: int
    changes: list[CodeChange]
    more: int


router = new_router(prefix="/api/v1", tags=["experiments"])


def _context(creator: Creator, connection: Connection, experiment_id: int, who: Principal) -> bytes:
    """The files, as tar.gz. Those who may not run code are shown no secrets of configurations among them. Raises NotFound,
    ContextError."""
    queries.experiment(connection, experiment_id)
    targz = creator.context(experiment_id)
    role = who.role_in_all(placement.workspaces_of(connection, "experiment", experiment_id))
    return targz if role >= Role.EDITOR else contexts.without_secrets(targz)


@router.get("/contexts/{digest}")
def known_context(digest: str, installation: TheInstallation, who: EditorSomewhere) -> dict[str, Any]:
    """Ours: whether the files of a context directory are here already, so that creating needs only their digest. Else 404."""
    contexts.by_digest(installation.home, digest)
    return {}


@router.get("/experiments/{experiment_id}/model_def")
def model_definition(experiment_id: int, creator: TheCreator, connection: Reading, who: Viewer) -> ModelDefinition:
    return ModelDefinition(b64_tgz=base64.b64encode(_context(creator, connection, experiment_id, who)).decode())


@router.get("/experiments/{experiment_id}/file_tree")
def file_tree(experiment_id: int, creator: TheCreator, connection: Reading, who: Viewer) -> FileTree:
    queries.experiment(connection, experiment_id)
    top: list[FileNode] = []
    folders: dict[str, list[FileNode]] = {"": top, ".": top}
    for member in contexts.members(creator.context(experiment_id)):
        path = PurePosixPath(member.name)
        node = FileNode(
            name=path.name,
            path=str(path),
            is_dir=member.isdir(),
            content_length=member.size,
            modified_time=time(member.mtime),
        )
        if member.isdir():
            folders[str(path)] = node.files
        folders.get(str(path.parent), top).append(node)
    return FileTree(files=top)


@router.post("/experiments/{experiment_id}/file")
def file(experiment_id: int, request: FileRequest, creator: TheCreator, connection: Reading, who: Viewer) -> FileAnswer:
    most = -1 if request.length is None else max(request.length, 0)
    content = contexts.content(_context(creator, connection, experiment_id, who), request.path, most)
    return FileAnswer(file=base64.b64encode(content).decode())


@router.get("/experiments/{experiment_id}/code_changes")
def code_changes(
    experiment_id: int, against: int, creator: TheCreator, connection: Reading, who: Viewer
) -> CodeChanges:
    """Ours: what is different in the files of this experiment from those of the experiment ``against``."""
    before, after = (_context(creator, connection, id, who) for id in (against, experiment_id))
    files, more = changes(before, after)
    models = [CodeChange(path=change.path, kind=change.kind, diff=change.diff, why=change.why) for change in files]
    return CodeChanges(against=against, changes=models, more=more)
