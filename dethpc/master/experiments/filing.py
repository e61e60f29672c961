"""The project that an experiment is created in, and what its workspace gives to its configuration."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from dethpc.config.source import read
from dethpc.config.wording import did_you_mean
from dethpc.domain.facts import Experiment
from dethpc.domain.records import UNCATEGORIZED, Project, User, Workspace, WorkspacePin
from dethpc.errors import NotFound, Refused
from dethpc.master.durable.records import RecordReader, Records

Place = TypeVar("Place", Workspace, Project)


def ensure_uncategorized(records: Records, owner: User) -> None:
    """Make the workspace and the project that hold whatever names none, where they are missing."""
    now = time.time()
    with records.exclusive():
        if not records.find(Workspace, id=UNCATEGORIZED):
            records.put(Workspace(UNCATEGORIZED, "Uncategorized", owner.id, now))
            records.put(WorkspacePin(owner.id, UNCATEGORIZED, now))
        if not records.find(Project, id=UNCATEGORIZED):
            records.put(Project(UNCATEGORIZED, UNCATEGORIZED, "Uncategorized", "UNCATEGORIZED", owner.id, now))


def workspace(records: RecordReader, workspace_id: int) -> Workspace:
    """Raises NotFound."""
    return records.live(Workspace, workspace_id)


def project(records: RecordReader, project_id: int) -> Project:
    """Raises NotFound."""
    return records.live(Project, project_id)


def workspace_by_name(records: RecordReader, name: str) -> Workspace:
    """Raises NotFound, with the names that there are."""
    by_name = {row.name: row for row in records.find(Workspace, deleted=False)}
    if name not in by_name:
        raise NotFound(f"there is no workspace {name!r}{others(name, by_name)}")
    return by_name[name]


def project_by_name(records: RecordReader, workspace_name: str, name: str) -> Project:
    """Raises NotFound, with the names that there are."""
    workspace_id = workspace_by_name(records, workspace_name).id
    by_name = {row.name: row for row in records.find(Project, workspace_id=workspace_id, deleted=False)}
    if name not in by_name:
        raise NotFound(f"there is no project {name!r} in workspace {workspace_name!r}{others(name, by_name)}")
    return by_name[name]


def others(name: str, names: Iterable[str]) -> str:
    """Which name may be meant, or all that there are, in words; "": there is none."""
    sorted_names = sorted(names)
    if hint := did_you_mean(name, sorted_names):
        return f" ({hint})"
    return f" (there are: {', '.join(sorted_names[:20])})" if sorted_names else ""


def open_workspace(records: RecordReader, workspace_id: int) -> Workspace:
    """One that takes projects, models and templates. Raises NotFound; Refused for an archived one."""
    row = workspace(records, workspace_id)
    if row.archived:
        raise Refused(f"workspace {row.name!r} is archived: unarchive it, or choose another workspace")
    return row


def open_project(records: RecordReader, project_id: int) -> Project:
    """One that takes experiments. Raises NotFound; Refused for an archived one."""
    row = project(records, project_id)
    if row.archived or workspace(records, row.workspace_id).archived:
        raise Refused(f"project {row.name!r} is archived: unarchive it, or choose another project")
    return row


def open_for_task(opened: Callable[[RecordReader, int], Place], records: RecordReader, id: int) -> Place:
    """``open_workspace`` or ``open_project``. Raises NotFound, also for an archived one, as in Determined."""
    try:
        return opened(records, id)
    except Refused as refusal:
        raise NotFound(str(refusal)) from None


def destination(
    records: Records, visible: RecordReader, project_id: int | None, config_yaml: str, parent: Experiment | None
) -> tuple[Project, list[str]]:
    """The project of a new experiment, and what its owner should know of that: the one that the request names, or its
    configuration, or that of its ``parent``, else Uncategorized. ``visible``: among which names are looked up.
    Raises NotFound, Refused.

    A configuration that was written for another cluster names a workspace that is not here: it works all the same. Where the
    workspace is here, an unknown project of it is a mistake. What a fork names as its parent did means where the parent is by now,
    unless that is in Uncategorized, perhaps because there was no such project then.
    """
    if project_id:
        return open_project(visible, project_id), []
    source, _ = read(config_yaml, "config")  # what cannot be read is refused later, with every mistake
    names: Mapping[str, Any] = source.data if isinstance(source.data, dict) else {}
    workspace_name, name = (names.get(key) for key in ("workspace", "project"))
    named = [value for value in (workspace_name, name) if isinstance(value, str) and value]
    inherited = (
        parent is not None
        and parent.project_id != UNCATEGORIZED
        and all(names.get(key) == parent.config.get(key) for key in ("workspace", "project"))
    )
    if not named or inherited:
        return open_project(records, parent.project_id if parent else UNCATEGORIZED), []
    if len(named) == 1:
        problem, remedy = "workspace and project are needed together", "name both"
    else:
        try:
            workspace_by_name(visible, named[0])
        except NotFound as error:
            problem, remedy = str(error), "create them (det workspace create, det project create)"
        else:
            return open_project(visible, project_by_name(visible, *named).id), []
    note = (
        f"{problem}: that means project Uncategorized; {remedy}, or move it: det experiment move ID WORKSPACE PROJECT"
    )
    return open_project(records, UNCATEGORIZED), [note]


def defaults(row: Workspace, slots: int | None) -> dict[str, Any]:
    """What the workspace gives to an experiment that does not say otherwise. ``slots``: of each trial."""
    pool = row.aux_pool if slots == 0 else row.pool
    return {
        **({"checkpoint_storage": row.checkpoint_storage} if row.checkpoint_storage else {}),
        **({"resources": {"resource_pool": pool}} if pool else {}),
    }
