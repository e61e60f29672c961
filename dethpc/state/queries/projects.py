"""Projects and workspaces: what they hold, and where experiments stand."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sqlalchemy import Connection, case, func, select

from dethpc.domain.facts import Experiment
from dethpc.domain.records import UNCATEGORIZED, Project, Workspace
from dethpc.domain.states import State
from dethpc.state import rows
from dethpc.state.dialects import VALUES, execute_in_chunks
from dethpc.state.queries.trials import trials_in

_experiment = rows.table(Experiment).c
_project = rows.table(Project).c
_workspace = rows.table(Workspace).c


@dataclass(slots=True)
class ProjectFigures:
    """What a project holds. ``runs`` are trials, as Determined counts them."""

    experiments: int = 0
    active: int = 0
    runs: int = 0
    last_started_at: float | None = None


def project_figures(connection: Connection, project_ids: Iterable[int]) -> dict[int, ProjectFigures]:
    """Of each project; experiments that were deleted do not count."""
    figures = {id: ProjectFigures() for id in project_ids}
    for id, *values in execute_in_chunks(connection, _FIGURES, sorted(figures)):
        figures[id] = ProjectFigures(*values)
    return figures


_FIGURES = (
    select(
        _experiment.project_id,
        func.count(),
        func.sum(case((_experiment.state == State.ACTIVE, 1), else_=0)),
        func.sum(trials_in(_experiment.id).scalar_subquery()),
        func.max(_experiment.created_at),
    )
    .where(_experiment.project_id.in_(VALUES), _experiment.state != State.DELETED)
    .group_by(_experiment.project_id)
)


class Place(NamedTuple):
    """The project and the workspace in which an experiment stands."""

    project_name: str = "Uncategorized"
    project_owner_id: int = 1
    workspace_id: int = UNCATEGORIZED
    workspace_name: str = "Uncategorized"


def places_of_experiments(connection: Connection, experiment_ids: Sequence[int]) -> dict[int, Place]:
    """Of experiments whose project is there; ``Place()`` stands for any other."""
    return {id: Place(*place) for id, *place in execute_in_chunks(connection, _PLACES, experiment_ids)}


_PLACES = (
    select(_experiment.id, _project.name, _project.user_id, _project.workspace_id, _workspace.name)
    .join(rows.table(Project), _project.id == _experiment.project_id)
    .join(rows.table(Workspace), _workspace.id == _project.workspace_id)
    .where(_experiment.id.in_(VALUES))
)
