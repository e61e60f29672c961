"""Tasks without a trial wait, run and end among experiments."""

from __future__ import annotations

from typing import Any

import pytest

from dethpc.domain.facts import Task
from dethpc.domain.ports import JobState
from dethpc.domain.states import Intent, RunState, State, TaskKind
from dethpc.engine import events
from dethpc.engine.events import QueueChange
from dethpc.engine.queueing.dispatch_order import in_order, order
from dethpc.engine.queueing.pools import Kind, Rules
from dethpc.errors import NotFound, Refused
from tests.engine.queueing.test_queue import create
from tests.engine.world import FAILED, FINISHED, World

ID = "0c5e1f5e-0000-4000-8000-000000000001"


def command(world: World, id: str = ID, **fields: Any) -> Task:
    fields = {"kind": TaskKind.COMMAND, "pool": "main", "slots": 1, **fields}
    wish = events.CreateTask(id=id, owner="me", name="ls", config={"entrypoint": "ls"}, at=world.now(), **fields)
    world.do(wish)
    world.assert_memory_is_a_fold_of_the_rows()
    return row(world, id)


def row(world: World, id: str = ID) -> Task:
    return next(task for task in world.rows(Task) if task.id == id)


def run_of(world: World, id: str = ID) -> Any:
    return next(run for run in world.live() if run.task_id == id)


@pytest.mark.parametrize("kind", ["priority", "fair_share", "fifo"])
def test_a_command_is_queued_among_experiments_in_every_kind_of_pool(kind: Kind) -> None:
    world = World()
    world.state.rules = {"main": Rules(kind, window=1)}
    before, task, after = create(world), command(world), create(world)
    shown = [job.entry.created_at for job in order(world.state, "main", world.clock)]
    assert shown == sorted(shown) and len(shown) == 3
    served = []
    for _ in range(3):
        (run,) = in_order(world.state, "main", world.clock)
        served.append(run.experiment_id or run.task_id)
        world.start(run)
        world.end(run, FINISHED)
        world.assert_memory_is_a_fold_of_the_rows()
    assert served == [before, task.id, after]


def test_a_command_with_a_better_priority_goes_first() -> None:
    world = World()
    world.state.rules = {"main": Rules("priority", window=1)}
    create(world, 3)
    command(world, priority=1)
    world.start(next(iter(world.live())))
    assert [run.task_id for run in in_order(world.state, "main", world.clock)] == [ID]


def test_a_command_that_used_its_share_lets_others_go_first() -> None:
    world = World()
    world.state.rules = {"main": Rules("fair_share", window=1)}
    command(world)
    world.start(run_of(world))
    world.clock += 1000
    waiting = create(world, 4)
    world.end(run_of(world), FINISHED)
    assert [run.experiment_id for run in in_order(world.state, "main", world.clock)] == [waiting]


@pytest.mark.parametrize(("report", "state"), [(FINISHED, State.COMPLETED), (FAILED, State.ERROR)])
def test_a_command_ends_as_its_one_run_does_and_is_not_begun_again(report: dict[str, Any], state: State) -> None:
    world = World()
    assert command(world).state is State.ACTIVE
    run = run_of(world)
    assert (run.id, run.experiment_id, run.number, run.state) == (f"{ID}.1", None, 1, RunState.SUBMITTING)
    world.start(run)
    world.end(run, report)
    assert row(world).state is state and row(world).ended_at is not None
    assert not world.live() and ID not in world.state.tasks and ID not in world.state.jobs
    world.assert_memory_is_a_fold_of_the_rows()


def test_a_service_that_ends_by_itself_says_why() -> None:
    world = World()
    command(world, kind=TaskKind.NOTEBOOK)
    run = run_of(world)
    world.start(run)
    world.end(run, FINISHED | {"message": "idle for 30m00s (idle_timeout)"})
    assert (row(world).state, row(world).reason) == (State.COMPLETED, "idle for 30m00s (idle_timeout)")


def test_a_command_that_the_scheduler_refuses_ends_with_its_reason() -> None:
    world = World()
    command(world)
    world.do(events.SubmitFailed(run_of(world).id, "no such partition", world.now()))
    assert (row(world).state, row(world).reason) == (State.ERROR, "no such partition")
    world.assert_memory_is_a_fold_of_the_rows()


def test_a_running_command_that_is_killed_ends_with_its_job() -> None:
    world = World()
    command(world)
    run = run_of(world)
    world.start(run)
    world.do(events.KillTask(ID, world.now()))
    assert run_of(world).intent is Intent.KILL and row(world).state is State.STOPPING_KILLED
    world.assert_memory_is_a_fold_of_the_rows()
    world.end(run, None, JobState.CANCELLED)
    assert (row(world).state, row(world).reason) == (State.CANCELED, "killed by a user")
    with pytest.raises(NotFound):
        world.do(events.KillTask(ID, world.now()))


def test_a_command_that_waits_in_our_queue_is_killed_at_once() -> None:
    world = World()
    world.state.rules = {"main": Rules("priority", window=1)}
    create(world)
    command(world)
    world.do(events.KillTask(ID, world.now()))
    assert row(world).state is State.CANCELED and not world.state.places.count
    world.assert_memory_is_a_fold_of_the_rows()


def test_a_trials_task_comes_and_ends_with_the_trial() -> None:
    world = World()
    experiment = create(world)
    (run,) = world.live()
    task = row(world, run.task_id)
    assert (task.kind, task.state, task.experiment_id) == (TaskKind.TRIAL, State.ACTIVE, experiment)
    with pytest.raises(Refused, match="kill the trial"):
        world.do(events.KillTask(task.id, world.now()))
    world.start(run)
    world.end(run, FINISHED)
    assert row(world, task.id).state is State.COMPLETED and not world.state.tasks


def test_a_task_with_a_trial_cannot_be_created_alone() -> None:
    with pytest.raises(Refused, match="create an experiment"):
        command(World(), kind=TaskKind.TRIAL)


def move(world: World, id: str, **where: Any) -> None:
    world.do(events.UpdateQueue([QueueChange(id, **where)], world.now()))
    world.assert_memory_is_a_fold_of_the_rows()


def test_a_command_moves_among_experiments_and_they_move_behind_it() -> None:
    world = World()
    first, second = (world.state.experiments[create(world)].id for _ in range(2))
    command(world)
    move(world, ID, ahead_of=second)
    assert [job.id for job in order(world.state, "main", world.clock)] == [first, ID, second]
    move(world, first, behind_of=ID)
    assert [job.id for job in order(world.state, "main", world.clock)] == [ID, first, second]
    move(world, ID, priority=60)
    assert row(world).priority == 60
    assert [job.id for job in order(world.state, "main", world.clock)] == [first, second, ID]


def test_a_command_that_waits_goes_to_another_pool_and_is_begun_there() -> None:
    world = World()
    command(world)
    withdrawn = run_of(world)
    move(world, ID, pool="other")
    assert world.state.runs[withdrawn.id].intent is Intent.KILL
    world.end(withdrawn, None)
    assert (row(world).state, run_of(world).pool, run_of(world).number) == (State.ACTIVE, "other", 2)
    world.assert_memory_is_a_fold_of_the_rows()


def test_a_command_killed_while_it_waits_in_the_schedulers_queue_is_not_begun_again() -> None:
    world = World()
    command(world)
    run = run_of(world)
    world.do(events.KillTask(ID, world.now()))
    world.end(run, None)
    assert row(world).state is State.CANCELED and not world.live()


def test_a_command_that_is_not_in_the_queue_cannot_be_moved() -> None:
    world = World()
    command(world)
    world.do(events.KillTask(ID, world.now()))
    with pytest.raises(NotFound, match=f"task {ID} is not in the queue"):
        move(world, ID, priority=1)


def test_a_pull_whose_job_somebody_cancels_is_begun_again_three_times_in_all() -> None:
    world = World()
    command(world, kind=TaskKind.IMAGE_PULL, slots=0)
    for left in (2, 1, 0):
        world.start(run_of(world))
        world.end(run_of(world), None, JobState.CANCELLED)
        world.assert_memory_is_a_fold_of_the_rows()
        assert row(world).state is (State.ACTIVE if left else State.CANCELED)
    assert "cancelled outside" in row(world).reason


def generic(world: World, **config: Any) -> Task:
    fields = {"kind": TaskKind.GENERIC, "pool": "main", "slots": 1}
    world.do(events.CreateTask(id=ID, owner="me", name="ls", config=config, at=world.now(), **fields))  # type: ignore[arg-type]
    return row(world)


def test_a_generic_task_that_is_paused_begins_anew_when_it_goes_on() -> None:
    world = World()
    generic(world)
    run = run_of(world)
    world.start(run)
    world.do(events.PauseTask(ID, world.now()))
    assert run_of(world).intent is Intent.KILL and row(world).state is State.PAUSED
    world.end(run_of(world), None, JobState.CANCELLED)
    assert row(world).state is State.PAUSED and not world.live()
    world.assert_memory_is_a_fold_of_the_rows()
    world.do(events.UnpauseTask(ID, world.now()))
    again = run_of(world)
    assert (again.number, row(world).state) == (2, State.ACTIVE)
    world.start(again)
    world.end(again, FINISHED)
    assert row(world).state is State.COMPLETED
    world.assert_memory_is_a_fold_of_the_rows()


def test_a_task_that_goes_on_before_its_job_has_ended_begins_anew_after_it() -> None:
    world = World()
    generic(world)
    world.start(run_of(world))
    world.do(events.PauseTask(ID, world.now()))
    world.do(events.UnpauseTask(ID, world.now()))
    assert run_of(world).number == 1
    world.end(run_of(world), None, JobState.CANCELLED)
    assert (run_of(world).number, row(world).state) == (2, State.ACTIVE)
    world.assert_memory_is_a_fold_of_the_rows()


def test_a_paused_task_is_killed_without_another_job() -> None:
    world = World()
    generic(world)
    world.start(run_of(world))
    world.do(events.PauseTask(ID, world.now()))
    world.end(run_of(world), None, JobState.CANCELLED)
    world.do(events.KillTask(ID, world.now()))
    assert row(world).state is State.CANCELED and not world.live()
    world.assert_memory_is_a_fold_of_the_rows()


def test_only_generic_tasks_that_may_be_paused_are() -> None:
    world = World()
    generic(world, no_pause=True)
    with pytest.raises(Refused, match="cannot be paused"):
        world.do(events.PauseTask(ID, world.now()))
    with pytest.raises(Refused, match="not paused"):
        world.do(events.UnpauseTask(ID, world.now()))
    other = World()
    command(other)
    with pytest.raises(Refused, match="cannot be paused"):
        other.do(events.PauseTask(ID, other.now()))
