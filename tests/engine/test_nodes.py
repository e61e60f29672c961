"""Which failures are held against a node, when it is left out, and that nobody innocent is."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dethpc.domain.facts import NodeHealth, Run
from dethpc.domain.nodes import NodeState
from dethpc.domain.ports import JobState, NodeInfo
from dethpc.domain.resource_request import ResourceRequest
from dethpc.domain.states import Intent
from dethpc.engine import events
from dethpc.engine.nodes import avoided, left_out, too_few_left
from tests.engine.world import FAILED, FINISHED, STOPPED, World, config

ECC = {**FAILED, "message": "exit code 1", "tail": ["RuntimeError: CUDA error: uncorrectable ECC error encountered"]}
UNPACK = {**FAILED, "phase": "unpack", "message": "no space"}
NO_GPU = {**FAILED, "message": "RuntimeError: No CUDA GPUs are available"}
BUG = {**FAILED, "message": "RuntimeError: CUDA error: device-side assert triggered"}


def searching(world: World) -> None:
    world.create(searcher=config("random", max_trials=40, max_concurrent_trials=4)["searcher"], max_restarts=9)


def fail(world: World, run: Run, node: str, report: dict[str, Any] | None, record: JobState | None = None) -> None:
    world.start(run, node)
    world.end(run, report, record)


def prove(world: World, node: str) -> None:
    """Some trial of the experiment trains on the node."""
    run = world.live()[-1]
    world.start(run, node)
    world.report(run, "metrics", group="training", steps_completed=1, metrics={"loss": 1.0})


def off(world: World) -> set[str]:
    return {name for name, node in world.state.nodes.items() if node.excluded(world.clock)}


@pytest.mark.parametrize(("report", "record"), [(ECC, None), (None, JobState.NODE_FAIL)])
def test_three_failures_of_two_trials_leave_a_node_out_for_a_day(
    report: dict[str, Any] | None, record: JobState | None
) -> None:
    world = World()
    searching(world)
    for trial in (0, 1, 0):
        assert off(world) == set()
        experiment = next(iter(world.state.experiments.values()))
        fail(world, experiment.live[trial], "bad", report, record)
    assert off(world) == {"bad"}
    node = world.state.nodes["bad"]
    assert node.excluded_until == pytest.approx(world.clock + 86400, abs=10)
    assert node.reason.startswith("3 failures of 2 trials")
    assert not node.excluded(node.excluded_until or 0)
    world.assert_memory_is_a_fold_of_the_rows()


def test_one_trial_alone_accuses_in_vain() -> None:
    world = World()
    searching(world)
    experiment = next(iter(world.state.experiments.values()))
    for _ in range(6):
        fail(world, experiment.live[0], "n0", ECC)
    assert off(world) == set()


@pytest.mark.parametrize("report", [UNPACK, NO_GPU])
def test_what_works_nowhere_is_not_the_nodes_fault(report: dict[str, Any]) -> None:
    world = World()
    searching(world)
    experiment = next(iter(world.state.experiments.values()))
    for trial in (0, 1, 0, 1):
        fail(world, experiment.live[trial], "n0", report)
    assert world.state.nodes == {}
    prove(world, "n1")
    for trial in (0, 1, 0):
        fail(world, experiment.live[trial], "n0", report)
    assert off(world) == {"n0"}


def test_a_bug_that_speaks_of_cuda_is_a_bug() -> None:
    world = World()
    searching(world)
    prove(world, "n1")
    experiment = next(iter(world.state.experiments.values()))
    for trial in (0, 1, 0, 1):
        fail(world, experiment.live[trial], "n0", BUG)
    assert world.state.nodes == {}


def test_training_that_goes_well_clears_a_node_but_not_what_a_person_said() -> None:
    world = World()
    searching(world)
    experiment = next(iter(world.state.experiments.values()))
    for trial in (0, 1):
        fail(world, experiment.live[trial], "n0", ECC)
    assert len(world.state.nodes["n0"].failures) == 2
    world.do(events.DisableNode("n0", "smells", world.now()))
    run = experiment.live[2]
    world.start(run, "n0")
    world.report(run, "metrics", group="validation", steps_completed=1, metrics={"loss": 0.5})
    world.end(run, FINISHED)
    assert world.state.nodes["n0"].failures == []
    assert off(world) == {"n0"} and world.state.nodes["n0"].reason == "smells"
    world.do(events.EnableNode("n0", world.now()))
    assert off(world) == set()
    world.assert_memory_is_a_fold_of_the_rows()


def test_without_drain_what_runs_on_a_disabled_node_stops_there_and_goes_on() -> None:
    world = World()
    searching(world)
    experiment = next(iter(world.state.experiments.values()))
    for index, node in enumerate(("n0", "n1")):
        world.start(experiment.live[index], node)
    world.do(events.DisableNode("n0", "smells", world.now()))
    assert {run.intent for run in experiment.live.values()} == {Intent.GO}, "drain: they go on"
    world.do(events.DisableNode("n0", "smells", world.now(), drain=False))
    stopped, other = experiment.live[0], experiment.live[1]
    assert (stopped.intent, other.intent) == (Intent.STOP, Intent.GO)
    assert stopped.intent_reason == "node n0 was disabled: smells"
    world.end(stopped, STOPPED)
    again = experiment.live[0]
    assert again.id != stopped.id and again.intent is Intent.GO and experiment.trials[0].restarts == 0
    assert off(world) == {"n0"}
    world.assert_memory_is_a_fold_of_the_rows()


def test_of_several_nodes_the_named_one_is_blamed_and_else_each_a_little() -> None:
    world = World()
    searching(world)
    experiment = next(iter(world.state.experiments.values()))
    world.start(experiment.live[0], "n0", "n1")
    world.end(experiment.live[0], {**ECC, "node": 1})
    assert {name: node.failures[0]["weight"] for name, node in world.state.nodes.items()} == {"n1": 1.0}
    world.start(experiment.live[1], "n2", "n3")
    world.end(experiment.live[1], None, JobState.NODE_FAIL)
    assert world.state.nodes["n2"].failures[0]["weight"] == world.state.nodes["n3"].failures[0]["weight"] == 0.5


def test_a_job_that_came_back_blames_the_nodes_that_are_down() -> None:
    world = World()
    searching(world)
    run = world.live()[0]
    world.start(run, "n0", "n1")
    world.end(run, None, requeued=True)
    assert world.state.nodes == {}, "an administrator's requeue, or a preemption"
    world.start(run, "n0", "n1")
    world.end(run, None, requeued=True, down=("n1",))
    assert set(world.state.nodes) == {"n1"}


def test_old_failures_are_forgotten() -> None:
    world = World()
    searching(world)
    experiment = next(iter(world.state.experiments.values()))
    for trial in (0, 1, 0):
        fail(world, experiment.live[trial], "n0", ECC)
        world.clock += 13 * 3600
    assert off(world) == set() and len(world.state.nodes["n0"].failures) == 2


def test_the_next_run_of_a_trial_goes_elsewhere_than_where_it_did_not_start() -> None:
    world = World()
    searching(world)
    run = world.live()[0]
    fail(world, run, "n0", UNPACK)
    assert [node.name for node in avoided(world.state, run.task_id, world.clock)] == ["n0"]
    other = world.live()[1]
    assert avoided(world.state, other.task_id, world.clock) == []


NAMES = [f"n{i}" for i in range(6)]


@given(
    states=st.lists(st.sampled_from(["idle", "mixed", "down", "drained"]), min_size=6, max_size=6),
    off_nodes=st.dictionaries(st.sampled_from([*NAMES, "gone"]), st.booleans()),
    needed=st.integers(1, 7),
)
def test_enough_nodes_are_always_left(states: list[str], off_nodes: dict[str, bool], needed: int) -> None:
    members = [NodeInfo(name, NodeState(state), 4, 0) for name, state in zip(NAMES, states, strict=True)]
    held = [
        NodeHealth(name, excluded_since=float(n), excluded_until=None if by_hand else 1e9)
        for n, (name, by_hand) in enumerate(off_nodes.items())
    ]
    names = left_out(held, members, ResourceRequest("main", needed, 4))
    up = {node.name for node in members if node.state in ("idle", "mixed")}
    assert set(names) <= set(off_nodes) & set(NAMES), "sbatch refuses names that it does not know"
    assert len(up - set(names)) >= min(needed, len(up))
    if len(up - set(off_nodes)) >= needed:
        assert set(names) == set(off_nodes) & set(NAMES), "nobody is spared without need"


def test_those_that_a_person_disabled_come_first() -> None:
    members = [NodeInfo(name, NodeState.IDLE, 4, 0) for name in ("a", "b")]
    held = [NodeHealth("a", excluded_since=9.0, excluded_until=99.0), NodeHealth("b", excluded_since=1.0)]
    assert left_out(held, members, ResourceRequest("main", 1, 4)) == ["b"]


def test_nodes_that_a_trials_log_excludes_are_left_out_before_all_others_and_may_leave_too_few() -> None:
    asked = ResourceRequest("main", 2, 4)
    members = [NodeInfo(f"n{i}", NodeState.IDLE, 4, 0) for i in range(3)] + [NodeInfo("small", NodeState.IDLE, 1, 0)]
    held = [NodeHealth("n1", excluded_since=1.0)]
    assert left_out(held, members, asked) == ["n1"]
    assert left_out(held, members, asked, ["n0", "gone"]) == ["n0"], "two have to be left"
    assert not too_few_left(members, asked, ["n0", "gone"])
    assert too_few_left(members, asked, ["n0", "n1"]) and left_out([], members, asked, ["n0", "n1"]) == ["n0", "n1"]
    assert not too_few_left(members[:1], asked, ["n0"]), "the pool has never been large enough: that is told elsewhere"
