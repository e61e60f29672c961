"""Routes of TensorBoards: tasks that serve TensorBoard over the event files of trials."""

from __future__ import annotations

from dethpc.domain import facts
from dethpc.domain.states import TaskKind
from dethpc.domain.task_settings import TaskSettings
from dethpc.master.http.access import (
    Editor,
    EditorSomewhere,
    Reading,
    TheInstallation,
    TheLauncher,
    TheRecords,
    Viewer,
    ViewerSomewhere,
)
from dethpc.master.http.models import MaskedConfig, Pagination, Wire
from dethpc.master.http.nouns import launched
from dethpc.master.http.nouns.launched import LaunchedTask, LaunchNotes, LaunchRequest, SetPriority, TheTasks
from dethpc.master.http.router import new_router
from dethpc.master.tasks import launching
from dethpc.master.tasks.interactive import TensorboardSources
from dethpc.state.queries.users import UserName


class Tensorboard(LaunchedTask):
    service_address: str
    experiment_ids: list[int]
    trial_ids: list[int]

    @classmethod
    def of(cls, task: facts.Task, run: facts.Run | None, user: UserName) -> Tensorboard:
        details = TaskSettings.of(task).details
        return cls(
            **cls.fields_of(task, run, user),
            service_address=f"/proxy/{task.id}/",
            experiment_ids=details["experiment_ids"],
            trial_ids=details["trial_ids"],
        )


class TensorboardRequest(LaunchRequest):
    experiment_ids: list[int] | None = None
    trial_ids: list[int] | None = None


class Tensorboards(Wire):
    tensorboards: list[Tensorboard]
    pagination: Pagination


class TensorboardAnswer(Wire):
    tensorboard: Tensorboard


class TensorboardDetails(TensorboardAnswer):
    config: MaskedConfig


class TensorboardLaunched(LaunchNotes, TensorboardDetails):
    pass


router = new_router(prefix="/api/v1/tensorboards", tags=["tensorboards"])


@router.get("")
def list_tensorboards(tasks: TheTasks, connection: Reading, who: ViewerSomewhere) -> Tensorboards:
    items, pagination = tasks.of(connection, TaskKind.TENSORBOARD)
    return Tensorboards(tensorboards=[Tensorboard.of(*item) for item in items], pagination=pagination)


@router.post("")
def launch_tensorboard(
    request: TensorboardRequest,
    launcher: TheLauncher,
    records: TheRecords,
    installation: TheInstallation,
    connection: Reading,
    who: EditorSomewhere,
) -> TensorboardLaunched:
    """Start TensorBoard on a node of a resource pool, for experiments and single trials."""
    experiments, trials = request.experiment_ids or [], request.trial_ids or []
    sources = TensorboardSources(connection, installation.cluster_id).of(experiments, trials)
    details = {"sources": sources, "experiment_ids": experiments, "trial_ids": trials}
    task, notes = launched.launch(launcher, records, who, TaskKind.TENSORBOARD, request, details=details)
    return TensorboardLaunched(
        tensorboard=Tensorboard.of(task, None, who.user), config=launching.shown(task), notes=notes
    )


@router.get("/{tensorboard_id}")
def get_tensorboard(tensorboard_id: str, launcher: TheLauncher, connection: Reading, who: Viewer) -> TensorboardDetails:
    task = launcher.task(tensorboard_id, TaskKind.TENSORBOARD)
    tensorboard = Tensorboard.of(*launched.entry(connection, task))
    return TensorboardDetails(tensorboard=tensorboard, config=launching.shown(task))


@router.post("/{tensorboard_id}/kill")
def kill_tensorboard(tensorboard_id: str, launcher: TheLauncher, connection: Reading, who: Editor) -> TensorboardAnswer:
    task = launcher.kill(tensorboard_id, TaskKind.TENSORBOARD)
    return TensorboardAnswer(tensorboard=Tensorboard.of(*launched.entry(connection, task)))


@router.post("/{tensorboard_id}/set_priority")
def set_priority(
    tensorboard_id: str,
    request: SetPriority,
    launcher: TheLauncher,
    records: TheRecords,
    connection: Reading,
    who: Editor,
) -> TensorboardAnswer:
    task = launched.set_priority(launcher, records, launcher.task(tensorboard_id, TaskKind.TENSORBOARD), request)
    return TensorboardAnswer(tensorboard=Tensorboard.of(*launched.entry(connection, task)))
