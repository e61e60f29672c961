"""Runs whose jobs another scheduler has: nothing is concluded of them by one that knows nothing of them."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from dethpc.domain.states import End, RunState, State
from dethpc.engine import events
from dethpc.errors import Refused
from dethpc.master.scheduler_settings import SchedulerSettings
from dethpc.master.submitting.hand_over import SUBMITTING
from dethpc.master.watching.foreign_runs import ForeignRuns, check_kind, title
from dethpc.rundir.files import read_json, write_json
from tests.master.conftest import T0
from tests.master.fake_scheduler import FakeScheduler
from tests.master.reconciler_world import World

OTHER = "slurm:other@login9:/state"


def moves_to_another_cluster(world: World) -> FakeScheduler:
    """The next master is one of a cluster that knows none of the jobs."""
    here, world.fake = world.fake, FakeScheduler(identity=OTHER)
    world.scheduler = world.fake
    world.reconciler = world.start()
    return here


def hands_over_without_an_answer(world: World) -> None:
    world.fake.answers_lost, world.fake.unseen, world.fake.settle = True, {"1"}, 3600.0
    world.cycle()


def elsewhere(world: World) -> ForeignRuns:
    foreign = world.reconciler._poller._foreign
    assert isinstance(foreign, ForeignRuns)
    return foreign


def test_a_run_says_which_scheduler_has_its_job(world: World) -> None:
    world.cycle()
    assert {run.scheduler for run in world.runs()} == {world.fake.identity}
    said = read_json(world.home.run("1.1.1").path / SUBMITTING)
    assert said is not None and said["scheduler"] == world.fake.identity
    with world.store.read() as connection:
        assert set(connection.exec_driver_sql("SELECT scheduler FROM runs").scalars()) == {world.fake.identity}


def test_nothing_is_concluded_of_runs_that_another_cluster_has(world: World) -> None:
    world.cycle()
    world.node_starts()
    world.cycle()
    here = moves_to_another_cluster(world)
    world.cycle(6)
    assert {run.state for run in world.runs()} == {RunState.RUNNING, RunState.PENDING}
    assert world.fake.requests["submit"] == 0
    assert elsewhere(world).notice.startswith(
        "3 runs are at the Slurm cluster fake (controller login1), and this master"
    )
    assert "belongs to the Slurm cluster fake (controller login1)" in elsewhere(world).why(world.run())
    world.fake = world.scheduler = here
    world.reconciler = world.start()
    world.cycle(2)
    assert elsewhere(world).notice == "" == elsewhere(world).why(world.run())
    here.end(world.job().job_id)
    world.cycle(2)
    assert world.ended("1.1.1")


def test_what_such_a_run_says_itself_counts(world: World) -> None:
    world.cycle()
    world.node_starts()
    moves_to_another_cluster(world)
    world.cycle(2)
    world.node_reports(steps=1)
    world.node_ends()
    world.cycle(2)
    assert world.ended("1.1.1") and world.ends["1.1.1", 0] is End.COMPLETED


def test_a_submission_without_an_answer_is_not_repeated_at_another_cluster(world: World) -> None:
    hands_over_without_an_answer(world)
    (unclear,) = [run for run in world.runs() if (world.home.run(run.id).path / SUBMITTING).exists()]
    moves_to_another_cluster(world)
    world.cycle(6)
    assert world.run(unclear.id).state is RunState.SUBMITTING
    assert world.fake.named(unclear.id) == []
    others = [run for run in world.runs() if run.id != unclear.id]
    assert {run.scheduler for run in others} == {OTHER}, "what was handed to nobody goes where the master is"


def test_a_controller_that_moved_is_known_by_the_jobs_that_it_lists(world: World) -> None:
    world.cycle()
    world.fake.identity = OTHER
    world.reconciler = world.start()
    world.cycle()
    assert {run.scheduler for run in world.runs()} == {OTHER}
    assert elsewhere(world).notice == ""


@pytest.mark.parametrize("same", [True, False])
def test_runs_of_an_earlier_release_are_where_the_last_master_sent_them(world: World, same: bool) -> None:
    world.cycle()
    for run in world.runs():
        world.ledger.do(events.SchedulerKnown(run.id, "", T0))
    settings = SchedulerSettings("slurm", slurm_conf="/site/slurm.conf")
    world.fake = world.scheduler = FakeScheduler(identity=OTHER)
    world.settings = settings
    world.before = settings if same else SchedulerSettings("slurm", slurm_conf="/other/slurm.conf")
    world.reconciler = world.start()
    world.cycle(6)
    assert world.ended("1.1.1") is same
    assert ("the Slurm of /other/slurm.conf" in elsewhere(world).notice) is not same
    world.before = settings  # of the master above
    world.reconciler = world.start()
    world.cycle(6)
    assert world.ended("1.1.1") is same


def test_their_owner_may_say_that_they_are_over(world: World) -> None:
    world.cycle()
    world.node_starts()
    world.cycle()
    moves_to_another_cluster(world)
    world.cycle(2)
    assert [run for run, _, _ in elsewhere(world).runs] == ["1.1.1", "1.2.1", "1.3.1"]
    elsewhere(world).take_over()
    world.cycle(3)
    assert all(world.ended(f"1.{n}.1") for n in (1, 2, 3))
    assert (world.trial().state, world.trial().restarts) == (State.ACTIVE, 0)
    assert elsewhere(world).runs == [] and elsewhere(world).notice == ""
    assert (world.home.run("1.1.1").closed).exists(), "a job that starts late after all trains nothing"


def test_a_silent_scheduler_is_named_with_how_many_runs_it_has(world: World) -> None:
    world.cycle()
    world.fake.silent = True
    world.cycle(2)
    assert "Slurm gives no answer" in elsewhere(world).notice
    assert elsewhere(world).notice.endswith("3 runs are shown as last seen")
    world.fake.silent = False
    world.cadence.answered()
    world.cycle(2)
    assert elsewhere(world).notice == ""


def test_no_master_of_another_kind_begins_while_runs_are_open(world: World) -> None:
    state = world.ledger.state
    check_kind(state, SchedulerSettings("slurm"), "local")  # nothing was handed over yet
    world.cycle()
    check_kind(state, SchedulerSettings("slurm"), "slurm")
    with pytest.raises(Refused, match=r"3 runs are open at the Slurm cluster fake .*DETHPC_SCHEDULER=slurm det master"):
        check_kind(state, SchedulerSettings("slurm"), "local")
    for run in world.runs():
        world.ledger.do(events.SchedulerKnown(run.id, "", time.time()))
    with pytest.raises(Refused, match="open at the Slurm of an earlier master"):
        check_kind(state, SchedulerSettings("slurm"), "local")
    for run in world.runs():  # as of a release that named no scheduler at all
        world.ledger.do(events.SchedulerKnown(run.id, ":?", time.time()))
    check_kind(state, SchedulerSettings("slurm"), "slurm")


@pytest.mark.parametrize(
    "identity, expected",
    [
        ("slurm:dev@login1:/var/spool", "the Slurm cluster dev (controller login1)"),
        ("slurm:@:", "the Slurm cluster without a name"),
        ("slurm:/x/slurm.conf:?", "the Slurm of /x/slurm.conf"),
        ("local:login1:0f", "the machine login1 without Slurm"),
        (":?", "the scheduler of an earlier master"),
    ],
)
def test_a_scheduler_has_a_name_for_people(identity: str, expected: str) -> None:
    assert title(identity) == expected


def test_a_damaged_note_of_whom_a_job_was_handed_to_costs_nobody_else(worlds: Callable[..., World]) -> None:
    world = worlds()
    hands_over_without_an_answer(world)
    (unclear,) = [run for run in world.runs() if (world.home.run(run.id).path / SUBMITTING).exists()]
    write_json(world.home.run(unclear.id).path / SUBMITTING, {"at": time.time(), "scheduler": 7})
    moves_to_another_cluster(world)
    world.cycle(4)
    assert world.run(unclear.id).state is RunState.SUBMITTING
    assert sum(run.state is not RunState.SUBMITTING for run in world.runs()) == 2
