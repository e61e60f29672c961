"""Routes of notebooks: tasks that serve JupyterLab."""

from __future__ import annotations

from typing import Any

from dethpc.domain import facts
from dethpc.domain.states import TaskKind
from dethpc.master.http.access import Editor, EditorSomewhere, Reading, TheLauncher, TheRecords, Viewer, ViewerSomewhere
from dethpc.master.http.models import MaskedConfig, Pagination, Wire
from dethpc.master.http.nouns import launched
from dethpc.master.http.nouns.launched import LaunchedTask, LaunchNotes, LaunchRequest, SetPriority, TheTasks
from dethpc.master.http.router import new_router
from dethpc.master.tasks import launching
from dethpc.state.queries.users import UserName


class Notebook(LaunchedTask):
    service_address: str

    @classmethod
    def of(cls, task: facts.Task, run: facts.Run | None, user: UserName) -> Notebook:
        return cls(**cls.fields_of(task, run, user), service_address=f"/proxy/{task.id}/")


class NotebookRequest(LaunchRequest):
    """``preview``: nothing is launched; the answer has the configuration."""

    preview: bool = False


class IdleReport(Wire):
    notebook_id: str = ""
    idle: bool = False


class Notebooks(Wire):
    notebooks: list[Notebook]
    pagination: Pagination


class NotebookAnswer(Wire):
    notebook: Notebook


class NotebookDetails(NotebookAnswer):
    config: MaskedConfig


class NotebookLaunched(LaunchNotes, NotebookDetails):
    pass


router = new_router(prefix="/api/v1/notebooks", tags=["notebooks"])


@router.get("")
def list_notebooks(tasks: TheTasks, connection: Reading, who: ViewerSomewhere) -> Notebooks:
    items, pagination = tasks.of(connection, TaskKind.NOTEBOOK)
    return Notebooks(notebooks=[Notebook.of(*item) for item in items], pagination=pagination)


@router.post("")
def launch_notebook(
    request: NotebookRequest, launcher: TheLauncher, records: TheRecords, who: EditorSomewhere
) -> NotebookLaunched:
    """Start JupyterLab on a node of a resource pool, or only show the configuration that it would have."""
    create = launched.preview if request.preview else launched.launch
    task, notes = create(launcher, records, who, TaskKind.NOTEBOOK, request)
    return NotebookLaunched(notebook=Notebook.of(task, None, who.user), config=launching.shown(task), notes=notes)


@router.get("/{notebook_id}")
def get_notebook(notebook_id: str, launcher: TheLauncher, connection: Reading, who: Viewer) -> NotebookDetails:
    task = launcher.task(notebook_id, TaskKind.NOTEBOOK)
    notebook = Notebook.of(*launched.entry(connection, task))
    return NotebookDetails(notebook=notebook, config=launching.shown(task))


@router.post("/{notebook_id}/kill")
def kill_notebook(notebook_id: str, launcher: TheLauncher, connection: Reading, who: Editor) -> NotebookAnswer:
    task = launcher.kill(notebook_id, TaskKind.NOTEBOOK)
    return NotebookAnswer(notebook=Notebook.of(*launched.entry(connection, task)))


@router.put("/{notebook_id}/report_idle")
def report_idle(notebook_id: str, request: IdleReport, launcher: TheLauncher, who: Editor) -> dict[str, Any]:
    """The notebook's own word on whether it is in use; that of ``dethpc.exec.notebook`` needs none."""
    launcher.report_idle(launcher.task(notebook_id, TaskKind.NOTEBOOK), idle=request.idle)
    return {}


@router.post("/{notebook_id}/set_priority")
def set_priority(
    notebook_id: str, request: SetPriority, launcher: TheLauncher, records: TheRecords, connection: Reading, who: Editor
) -> NotebookAnswer:
    task = launched.set_priority(launcher, records, launcher.task(notebook_id, TaskKind.NOTEBOOK), request)
    return NotebookAnswer(notebook=Notebook.of(*launched.entry(connection, task)))
