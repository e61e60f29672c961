"""In which workspace something lies."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, Connection, select

from dethpc.domain.facts import Checkpoint, Experiment, Run, Task, Trial
from dethpc.domain.records import Model, Project, Template, Webhook, Workspace
from dethpc.domain.task_settings import TaskSettings
from dethpc.state import rows

_experiment = rows.table(Experiment).c
_project = rows.table(Project).c
_run = rows.table(Run).c
_task = rows.table(Task).c

_OWN: dict[str, tuple[type[Any], str]] = {
    "workspace": (Workspace, "id"),
    "project": (Project, "id"),
    "key": (Project, "key"),
    "model": (Model, "name"),
    "model_id": (Model, "id"),
    "template": (Template, "name"),
    "webhook": (Webhook, "id"),
}
"""What names its workspace itself, and the column by which it is looked up."""

_OF_EXPERIMENTS: dict[str, tuple[type[Any], str]] = {
    "experiment": (Experiment, "id"),
    "trial": (Trial, "id"),
    "task": (Task, "id"),
    "run": (Run, "id"),
    "job": (Run, "scheduler_job_id"),
    "checkpoint": (Checkpoint, "uuid"),
}


def workspaces_of(connection: Connection, noun: str, value: Any) -> set[int]:
    """Those of what ``value`` names; none where it names nothing; 0 for what belongs to none, as a webhook of all workspaces."""
    if noun in _OWN:
        kind, name = _OWN[noun]
        columns = rows.table(kind).c
        of = columns.id if kind is Workspace else columns.workspace_id
        live = (
            () if "deleted" not in columns else (columns.deleted.is_(False),)
        )  # another may have the name of a deleted one
        return {id or 0 for id in connection.scalars(select(of).where(columns[name] == value, *live))}
    if noun in ("task", "run") and (task := _launched(connection, noun, value)) is not None:
        return {TaskSettings.of(task).workspace_id}
    kind, name = _OF_EXPERIMENTS[noun]
    columns = rows.table(kind).c
    experiment: ColumnElement[Any] = columns.id if kind is Experiment else columns.experiment_id
    query = (
        select(_project.workspace_id)
        .join(rows.table(Experiment), _experiment.project_id == _project.id)
        .where(_experiment.id.in_(select(experiment).where(columns[name] == value)))
    )
    return set(connection.scalars(query))


def _launched(connection: Connection, noun: str, value: Any) -> Task | None:
    """The task of its own that ``value`` names, or that the run is of."""
    task_id = value if noun == "task" else select(_run.task_id).where(_run.id == value).scalar_subquery()
    task = rows.first(connection, Task, rows.query(Task, _task.id == task_id, _task.experiment_id.is_(None)))
    return task if task is not None and task.kind.launched else None
