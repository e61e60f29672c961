"""The order of the queue, its window, and what users change about it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dethpc.domain.facts import Run
from dethpc.domain.states import Intent, RunState
from dethpc.engine import events
from dethpc.engine.changes import ExperimentChanges
from dethpc.engine.events import QueueChange
from dethpc.engine.queueing.dispatch_order import in_order
from dethpc.engine.queueing.pools import Free, Kind, Rules
from dethpc.engine.queueing.queue import PATIENCE
from dethpc.errors import NotFound, Refused
from tests.engine.world import FINISHED, World, config
from tests.example_counts import examples


def create(world: World, trials: int = 1, pool: str = "main", **resources: Any) -> int:
    return world.create(
        searcher=config(max_trials=trials, max_concurrent_trials=trials)["searcher"],
        resources={"slots_per_trial": 1, "resource_pool": pool, **resources},
    ).id


def see(world: World, free: Sequence[tuple[int, int]] = (), pool: str = "main", started: int = 0) -> None:
    """The scheduler shows nodes with (free, all) slots."""
    world.do(events.QueueSeen({pool: free}, {pool: started}, {}, world.now()))


def change(world: World, *changes: QueueChange) -> None:
    """Ids of experiments stand for their jobs."""

    def job(id: Any) -> Any:
        experiment = world.state.experiments.get(id)
        return id if experiment is None else experiment.id

    named = [
        replace(each, queue_id=job(each.queue_id), ahead_of=job(each.ahead_of), behind_of=job(each.behind_of))
        for each in changes
    ]
    world.do(events.UpdateQueue(named, world.now()))
    world.assert_memory_is_a_fold_of_the_rows()


def waiting(world: World, pool: str = "main") -> list[int]:
    return [run.experiment_id for run in in_order(world.state, pool, world.clock)]


def test_jobs_wait_by_priority_then_place_then_age() -> None:
    world = World()
    first, second, urgent = create(world), create(world), create(world, priority=7)
    assert waiting(world) == [urgent, first, second]
    change(world, QueueChange(second, ahead_of=first))
    assert waiting(world) == [urgent, second, first]
    change(world, QueueChange(first, ahead_of=urgent))
    assert waiting(world) == [first, urgent, second]
    assert world.state.experiments[first].row.priority == 7, "a job that moves takes the priority of the other"
    change(world, QueueChange(first, behind_of=second), QueueChange(urgent, priority=50))
    assert waiting(world) == [second, first, urgent]


def test_there_is_always_a_place_between_two_jobs() -> None:
    world = World()
    ids = [create(world) for _ in range(3)]
    order = list(ids)
    for n in range(150):  # halves of halves end after some fifty
        moved = order.pop(2)
        order.insert(1, moved)
        change(world, QueueChange(moved, **({"behind_of": order[0]} if n % 2 else {"ahead_of": order[2]})))
        assert waiting(world) == order


def test_a_batch_is_done_as_a_whole_or_not_at_all() -> None:
    world = World()
    first, second = create(world), create(world)
    with pytest.raises(NotFound, match="99"):
        change(world, QueueChange(second, priority=1), QueueChange(first, ahead_of=99))
    assert waiting(world) == [first, second]
    change(world, QueueChange(second, priority=1), QueueChange(first, ahead_of=second))
    assert waiting(world) == [first, second]


def test_what_a_pools_scheduler_cannot_do_is_refused_with_the_reason() -> None:
    world = World()
    world.state.rules = {"fair": Rules("fair_share"), "first": Rules("fifo")}
    prior, other = create(world, pool="main"), create(world, pool="main")
    fair, fair2, first = create(world, pool="fair"), create(world, pool="fair"), create(world, pool="first")
    for wish, message in (
        (QueueChange(fair, priority=1), "pool fair has the fair_share scheduler.*set a weight"),
        (QueueChange(first, priority=1), "pool first has the fifo scheduler"),
        (QueueChange(prior, weight=2.0), "pool main has the priority scheduler.*set a priority"),
        (
            QueueChange(fair, ahead_of=fair2),
            "fair_share scheduler; jobs can only be moved in pools with the priority scheduler",
        ),
        (QueueChange(prior, behind_of=fair), "pool main and experiment 3 in pool fair"),
        (QueueChange(prior, ahead_of=prior), "ahead of or behind itself"),
        (QueueChange(prior, priority=100), "1 .first. to 99 .last."),
        (QueueChange(fair, weight=0.0), "above 0"),
        (QueueChange(prior, priority=3, ahead_of=other), "one of"),
        (QueueChange(prior), "one of"),
    ):
        with pytest.raises(Refused, match=message):
            change(world, wish)
    with pytest.raises(Refused, match="ignores weights"):
        world.do(events.ChangeExperiment(prior, ExperimentChanges(weight=2.0), world.now()))


def test_another_pool_gets_the_runs_that_wait_and_running_ones_go_on() -> None:
    world = World()
    id = create(world, trials=2)
    running, withdrawn = world.live()
    world.start(running)
    change(world, QueueChange(id, pool="other"))
    assert world.state.runs[running.id].intent is Intent.GO
    assert world.state.runs[withdrawn.id].intent is Intent.KILL
    world.end(withdrawn, None)
    (again,) = [run for run in world.live() if run.id != running.id]
    assert (again.pool, again.task_id) == ("other", withdrawn.task_id)
    assert world.state.experiments[id].row.config["resources"]["resource_pool"] == "other"
    world.assert_memory_is_a_fold_of_the_rows()


def test_a_smaller_max_slots_takes_back_what_waits_and_then_the_newest() -> None:
    world = World()
    id = create(world, trials=6)
    for run in world.live()[:4]:
        world.start(run)
    world.do(events.ChangeExperiment(id, ExperimentChanges(max_slots=3), world.now()))
    intents = [world.state.runs[f"{id}.{n}.1"].intent for n in range(1, 7)]
    assert intents == [Intent.GO] * 3 + [Intent.STOP] + [Intent.KILL] * 2
    for run in world.live()[3:]:
        world.end(run, None)
    assert len(world.live()) == 3
    world.do(events.ChangeExperiment(id, ExperimentChanges(max_slots=None), world.now()))
    assert len(world.live()) == 6


# --- the window


@pytest.mark.parametrize("kind", ["priority", "fair_share"])
def test_a_job_of_which_the_scheduler_takes_nothing_is_in_nobodys_way(kind: Kind) -> None:
    """Not even after ``PATIENCE``. Neither is it given more runs meanwhile."""
    world = World()
    world.state.rules = {"main": Rules(kind, window=4)}

    def runs(experiment: int) -> list[Run]:
        return [run for run in world.live() if run.experiment_id == experiment and run.intent is Intent.GO]

    held = create(world, trials=20)
    refused = runs(held)
    assert len(refused) == 4
    world.do(events.SubmitDeferred(refused[0].id, "the account is closed", world.now()))
    assert len(runs(held)) == 4
    world.clock += PATIENCE + 1
    other = create(world, trials=20)
    assert len(runs(other)) == 4, "the window is all its own"
    see(world, [(0, 8)])
    assert len(runs(held)) == len(runs(other)) == 4, "nothing is taken back"
    see(world, [(6, 8)])
    assert (len(runs(held)), len(runs(other))) == (4, 6), "what could start may overtake"
    assert len(runs(create(world))) == (kind == "fair_share"), "who has had nothing comes first there"
    world.assert_memory_is_a_fold_of_the_rows()
    world.do(events.Submitted(refused[0].id, "job", world.now()))
    assert world.state.runs[refused[0].id].reason == ""
    world.assert_memory_is_a_fold_of_the_rows()
    see(world, [(0, 8)])
    see(world, [(0, 8)])
    assert sum(run.intent is Intent.GO for run in world.live()) == 8, "all share the window again"


def test_a_refused_run_that_was_the_last_one_leaves_its_place_to_the_next_trial() -> None:
    """Its experiment stood aside because of it, and nothing else happens in a cluster without runs."""
    world = World()
    world.state.rules = {"main": Rules(window=1)}
    create(world, trials=2)
    (refused,) = world.live()
    world.do(events.SubmitDeferred(refused.id, "its directory cannot be written", world.now()))
    world.do(events.SubmitFailed(refused.id, "its directory cannot be written", world.now()))
    (following,) = world.live()
    assert following.task_id != refused.task_id


def test_the_window_grows_while_its_jobs_start_at_once() -> None:
    world = World()
    create(world, trials=500)
    assert len(world.live()) == 16
    started = 16
    for _ in range(3):
        for run in [run for run in world.live() if run.state is not RunState.RUNNING][:started]:
            world.start(run)
        see(world, started=started)
        started *= 2
        assert sum(run.state is not RunState.RUNNING for run in world.live()) == started
    for _ in range(2):
        see(world)
    assert world.state.pools["main"].window == 16, "nothing starts any more"


def test_everything_that_could_start_now_is_submitted() -> None:
    world = World()
    create(world, trials=100)
    see(world, [(8, 8)] * 5)
    assert len(world.live()) == 40


def test_large_trials_that_cannot_start_do_not_keep_a_smaller_one_waiting() -> None:
    world = World()
    create(world, trials=30, slots_per_trial=8)
    small = create(world, trials=30)
    see(world, [(3, 8), (2, 8)])
    assert [run.experiment_id for run in world.live()].count(small) == 5
    assert len(world.live()) == 16 + 5


def test_a_large_trial_is_overtaken_for_a_time_only() -> None:
    world = World()
    create(world, trials=16, slots_per_trial=8)
    world.clock += PATIENCE + 1
    small = create(world, trials=30)
    see(world, [(3, 8), (2, 8)])
    assert small not in [run.experiment_id for run in world.live()]


@given(
    st.integers(1, 8),
    st.lists(st.tuples(st.integers(0, 8), st.integers(0, 5)), max_size=5),
    st.lists(st.sampled_from([0, 1, 2, 3, 4, 8, 16, 24]), max_size=20),
)
def test_no_slot_is_given_away_twice(size: int, counts: list[tuple[int, int]], wishes: list[int]) -> None:
    counts = [(min(free, size), nodes) for free, nodes in counts]
    free = Free.of(size, counts)
    have = sum(slots * nodes for slots, nodes in counts)
    for slots in wishes:
        left = sum(free.slots)
        if free.place(slots):
            have -= -(-slots // size) * size if slots > size else slots
        else:
            assert sum(free.slots) == left
        assert sum(free.slots) == have >= 0
        assert free.slots == sorted(free.slots)


def test_what_comes_first_goes_to_the_scheduler_though_the_window_is_full_and_the_last_is_taken_back() -> None:
    world = World()
    world.state.rules = {"main": Rules(window=4), "fair": Rules("fair_share", window=4)}
    create(world, trials=10)
    urgent = create(world, trials=10, priority=1)
    assert [run.experiment_id for run in world.live()].count(urgent) == 4
    pressing = create(world, trials=10, priority=2)
    assert pressing not in waiting(world)
    more = create(world, trials=1, priority=1)
    assert more not in waiting(world), "four of its priority are older"
    first = create(world, trials=2, priority=1)
    change(world, QueueChange(first, ahead_of=urgent))
    assert waiting(world)[:2] == [first, first] and len(waiting(world)) == 10
    see(world)
    assert len(waiting(world)) == 8
    one, three = create(world, 20, "fair"), create(world, 20, "fair", weight=3.0)
    assert [waiting(world, "fair").count(id) for id in (one, three)] == [4, 3]


# --- fair shares


@pytest.mark.parametrize("durations", [(50.0, 50.0), (20.0, 90.0), (90.0, 20.0)])
@pytest.mark.slow
def test_slots_are_shared_by_weight_over_time(durations: tuple[float, float]) -> None:
    """A scheduler of 8 slots starts the first of our order when a run ends; it sees a change of the order one run late."""
    world = World()
    world.state.rules = {"fair": Rules("fair_share")}
    one, three = create(world, 2000, "fair", weight=1.0), create(world, 2000, "fair", weight=3.0)
    lasting = {one: durations[0], three: durations[1]}
    rng, ends, used = random.Random(7), [], {one: 0.0, three: 0.0}
    order = in_order(world.state, "fair", world.clock)
    for turn in range(800):
        while len(ends) < 8:
            run = next(run for run in order if run.id in world.state.live.pending["fair"])
            order = in_order(world.state, "fair", world.clock)
            world.start(run)
            ends.append((world.clock + lasting[run.experiment_id] * rng.uniform(0.5, 1.5), run))
        if turn % 20 == 0:
            world.do(events.QueueSeen({"fair": [(0, 8)]}, {"fair": 0}, {}, world.clock))
        ends.sort(key=lambda end: end[0])
        at, run = ends.pop(0)
        passed = max(0.0, at - world.clock)
        for _, busy in [*ends, (at, run)]:
            used[busy.experiment_id] += passed
        world.clock += passed
        world.end(run, FINISHED)
    assert used[three] / used[one] == pytest.approx(3, rel=0.1)
    world.assert_memory_is_a_fold_of_the_rows()


def test_who_comes_later_has_no_claim_on_the_past() -> None:
    world = World()
    world.state.rules = {"fair": Rules("fair_share", window=4)}
    create(world, 50, "fair")
    for _ in range(20):
        run = next(iter(world.state.live.pending["fair"].values()))
        world.start(run)
        world.clock += 100
        world.end(run, FINISHED)
    newcomer = create(world, 50, "fair")
    picked: list[int] = []
    for _ in range(20):
        run = in_order(world.state, "fair", world.clock)[0]
        picked.append(run.experiment_id)
        world.start(run)
        world.clock += 100
        world.end(run, FINISHED)
    assert 7 <= picked.count(newcomer) <= 14, picked


# --- whatever happens


@settings(max_examples=examples(40), deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["create", "move", "priority", "pool", "slots", "start", "end", "see"]), st.integers(0, 99)
        ),
        max_size=40,
    )
)
def test_max_slots_holds_and_memory_is_a_fold_whatever_happens(actions: list[tuple[str, int]]) -> None:
    world = World()
    world.state.rules = {"fair": Rules("fair_share", window=5)}
    limits: dict[int, int | None] = {}
    for action, n in actions:
        _play(world, limits, action, n)
        world.assert_memory_is_a_fold_of_the_rows()
        for id, limit in limits.items():
            runs = [run for run in world.live() if run.experiment_id == id and run.intent is Intent.GO]
            assert limit is None or sum(run.slots for run in runs) <= limit
        for pool in ("main", "fair"):
            keys = [_order(world, run) for run in in_order(world.state, pool, world.clock)]
            assert pool == "fair" or keys == sorted(keys)


def _order(world: World, run: Run) -> tuple[Any, ...]:
    row = world.state.experiments[run.experiment_id].row
    return (row.priority, row.queue_position, row.created_at, row.id, world.state.member_of(run))


def _play(world: World, limits: dict[int, int | None], action: str, n: int) -> None:
    ids = [e.row.id for e in world.state.active()]
    runs = world.live()
    if action == "create":
        limit = (n % 7) + 1 if n % 2 else None
        slots = min(n % 3 + 1, limit or 9)
        id = create(world, n % 9 + 1, "fair" if n % 5 == 0 else "main", slots_per_trial=slots, max_slots=limit)
        limits[id] = limit
    elif action == "see":
        see(world, [(n % 5, 8), (n % 8, 8)], "fair" if n % 3 == 0 else "main", started=n % 11)
    elif action == "start" and runs and runs[n % len(runs)].intent is Intent.GO:
        run = runs[n % len(runs)]
        if run.state is not RunState.RUNNING:
            world.start(run)
    elif action == "end" and runs:
        world.end(runs[n % len(runs)], FINISHED if runs[n % len(runs)].state is RunState.RUNNING else None)
    elif ids and action in ("move", "priority", "pool", "slots"):
        id, other = ids[n % len(ids)], ids[n * 7 % len(ids)]
        if action == "slots":
            limits[id] = n % 5 + 3
            world.do(events.ChangeExperiment(id, ExperimentChanges(max_slots=limits[id]), world.now()))
            return
        wish = {
            "move": QueueChange(id, ahead_of=other) if n % 2 else QueueChange(id, behind_of=other),
            "priority": QueueChange(id, priority=n % 99 + 1),
            "pool": QueueChange(id, pool="fair" if n % 2 else "main"),
        }[action]
        try:
            change(world, wish)
        except Refused:
            pass
