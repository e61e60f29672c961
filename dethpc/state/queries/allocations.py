"""Which slots of the cluster were held when, for what and for whom: the history of all attempts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from sqlalchemy import Connection, func, or_, select

from dethpc.domain.facts import Attempt, Experiment, Run, Task
from dethpc.domain.records import UNCATEGORIZED, Project, User, Workspace
from dethpc.domain.states import AttemptState, TaskKind
from dethpc.state import rows

_attempt = rows.table(Attempt).c
_run = rows.table(Run).c
_task = rows.table(Task).c
_experiment = rows.table(Experiment).c
_project = rows.table(Project).c
_workspace = rows.table(Workspace).c
_user = rows.table(User).c


class Allocation(NamedTuple):
    """An attempt, what held its slots, and who created that. ``ended_at`` None: it still does."""

    run_id: str
    number: int
    started_at: float
    ended_at: float | None
    slots: int
    pool: str
    kind: TaskKind
    user_id: int
    username: str
    experiment_id: int | None
    labels: list[str] | None
    workspace: str | None


_END = func.coalesce(_attempt.ended_at, _run.ended_at)
_CREATOR = func.coalesce(_experiment.user_id, _task.user_id)
_ELSEWHERE = [kind for kind in TaskKind if not kind.submitted]


def allocations(connection: Connection, after: float, before: float) -> Iterator[Allocation]:
    """Those that held slots within this time, by when they began. What trains elsewhere holds none here."""
    query = (
        select(
            _attempt.run_id,
            _attempt.number,
            _attempt.started_at,
            _END,
            _run.slots,
            _run.pool,
            _task.kind,
            _CREATOR,
            func.coalesce(_user.username, _task.owner),
            _task.experiment_id,
            _experiment.labels,
            _workspace.name,
            _task.config,
        )
        .select_from(rows.table(Attempt))
        .join(rows.table(Run), _run.id == _attempt.run_id)
        .join(rows.table(Task), _task.id == _run.task_id)
        .outerjoin(rows.table(Experiment), _experiment.id == _task.experiment_id)
        .outerjoin(rows.table(User), _user.id == _CREATOR)
        .outerjoin(rows.table(Project), _project.id == _experiment.project_id)
        .outerjoin(rows.table(Workspace), _workspace.id == _project.workspace_id)
        .where(_attempt.started_at < before, _task.kind.not_in(_ELSEWHERE))
        .where(or_(_END > after, _END.is_(None) & (_attempt.state == AttemptState.RUNNING)))
        .order_by(_attempt.started_at, _attempt.run_id, _attempt.number)
    )
    names = {row.id: row.name for row in connection.execute(select(_workspace.id, _workspace.name))}
    for *columns, workspace, config in connection.execute(query.execution_options(yield_per=1000)):
        of_task = names.get(config.get("workspace_id", UNCATEGORIZED))  # one without an experiment names it itself
        yield Allocation._make([*columns, workspace or of_task])
