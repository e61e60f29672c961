"""Our order inside the scheduler's own queue, where nice moves jobs there and where it moves nothing."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dethpc.domain.facts import Run
from dethpc.domain.ports import JobRecord, JobState
from dethpc.domain.states import Intent, RunState
from dethpc.engine import events
from dethpc.engine.events import QueueChange
from dethpc.engine.queueing.nice import LARGEST, LEAST, PendingJob, assign, in_the_way
from dethpc.engine.queueing.pools import Rules
from dethpc.engine.queueing.queue import FEWEST, LEAST_WINDOW
from tests.engine.queueing.test_queue import change, create, waiting
from tests.engine.world import FINISHED, World
from tests.example_counts import examples

# --- what is asked for


def numbered(jobs: list[PendingJob]) -> list[PendingJob]:
    """In whatever order the scheduler got them, no two at once."""
    places = random.Random(len(jobs)).sample(range(len(jobs)), len(jobs))
    return [job._replace(number=number) for job, number in zip(jobs, places)]


JOBS = st.lists(st.builds(PendingJob, st.integers(1000, 1100), st.integers(0, 50)), max_size=30).map(numbered)


def after(jobs: list[PendingJob], wanted: list[int]) -> list[PendingJob]:
    """The jobs as the scheduler shows them once they step back so far."""
    return [PendingJob(job.base - nice, nice, job.number) for job, nice in zip(jobs, wanted)]


def in_order(jobs: list[PendingJob]) -> bool:
    return all(a.place > b.place for a, b in zip(jobs, jobs[1:]))


@given(JOBS)
def test_nice_values_bring_jobs_into_order(jobs: list[PendingJob]) -> None:
    wanted = assign(jobs, 1000)
    assert all(nice >= 0 for nice in wanted)
    settled = after(jobs, wanted)
    assert in_order(settled)
    assert assign(settled, 1000) == wanted, "what is in order is left alone"
    assert in_the_way(jobs) == [], "each of them can step back"


@given(JOBS, st.integers(1, 5))
def test_the_order_is_reached_in_small_steps(jobs: list[PendingJob], step: int) -> None:
    for _ in range(200):
        wanted = assign(jobs, step)
        changed = sum(nice != job.nice for job, nice in zip(jobs, wanted))
        assert changed <= step
        if not changed:
            break
        jobs = after(jobs, wanted)
    assert in_order(jobs)


def test_one_job_that_goes_first_makes_the_others_step_back_by_the_same() -> None:
    jobs = [PendingJob(1000 - n, 0) for n in (9, *range(9))]
    assert assign(jobs, 1000) == [0] + [10] * 9


def test_of_equal_priorities_the_older_job_is_before_the_younger_and_nothing_is_asked() -> None:
    jobs = [PendingJob(1000, 0, number) for number in range(5)]
    assert assign(jobs, 1000) == [0] * 5
    assert assign([jobs[4], *jobs[:4]], 1000) == [0, 1, 1, 1, 1]


def test_where_all_have_the_least_priority_nothing_is_asked_and_who_is_too_early_is_in_the_way() -> None:
    first, second, third, fourth = (PendingJob(LEAST, 0, number) for number in range(4))
    for jobs, those in (
        ([first, second, third], []),
        ([third, first, second], [1, 2]),
        ([first, fourth, second, third], [2, 3]),
        ([second, first, third, fourth], [1]),
    ):
        assert assign(jobs, 1000) == [0] * len(jobs)
        assert in_the_way(jobs) == those


def test_a_job_that_stood_too_far_ahead_for_any_nice_is_not_taken_back_for_nothing() -> None:
    jobs = [PendingJob(LEAST, 0, 2), PendingJob(5 * LARGEST, 0, 1)]
    assert in_the_way(jobs) == []
    assert assign(jobs, 1000) == [0, LARGEST]


BASES = st.lists(st.tuples(st.integers(-5, 40), st.integers(0, 60)), max_size=14)


@given(BASES, st.randoms(use_true_random=False))
def test_whatever_room_priorities_leave_the_order_is_reached_and_then_nothing_is_asked(
    found: list[tuple[int, int]], rng: random.Random
) -> None:
    """``found``: what the site's weights give to each job, and how far it steps back at first."""
    places = rng.sample(range(len(found)), len(found))
    jobs = [PendingJob(max(LEAST, base - nice), nice, n) for (base, nice), n in zip(found, places)]
    came = len(jobs)
    for _ in range(4 * len(jobs) + 4):
        back = in_the_way(jobs)
        stay = [n for n in range(len(jobs)) if n not in back]
        wanted = assign([jobs[n] for n in stay], 1000)
        if not back and wanted == [job.nice for job in jobs]:
            break
        for n, nice in zip(stay, wanted):
            jobs[n] = PendingJob(max(LEAST, found[n][0] - nice), nice, jobs[n].number)
        for n in back:  # it comes again, and steps back as far as those before it
            nice, came = max((job.nice for job in jobs[:n]), default=0), came + 1
            jobs[n] = PendingJob(max(LEAST, found[n][0] - nice), nice, came)
    else:
        raise AssertionError(f"no end: {jobs}")
    assert in_order(jobs)


# --- in the engine


@dataclass
class Site:
    """A Slurm whose jobs all have the priority ``base`` less their nice, the least at least; of equals it starts the oldest."""

    world: World
    base: int
    pool: str = "main"
    numbers: dict[str, int] = field(default_factory=dict)  # by run, in the order of their submission
    nices: dict[str, int] = field(default_factory=dict)
    asked: int = 0  # changes of nice
    cancelled: int = 0

    def queue(self) -> dict[str, PendingJob]:
        """As the scheduler shows it now: what is wanted is there at once, what is to be killed is gone."""
        for run in list(self.world.state.runs.values()):
            if run.state is not RunState.RUNNING and run.pool == self.pool:
                if run.intent is Intent.KILL:
                    self.cancelled += 1
                    self.world.end(run, None)
                elif run.id not in self.numbers:
                    self.numbers[run.id], self.nices[run.id] = len(self.numbers), run.nice
        return {
            run.id: PendingJob(max(LEAST, self.base - self.nices[run.id]), self.nices[run.id], self.numbers[run.id])
            for run in self.world.state.live.pending.get(self.pool, {}).values()
            if run.id in self.numbers
        }

    def look(self, free: int = 0, size: int = 8, started: int = 0) -> None:
        shown = self.queue()
        nodes, begun = {self.pool: [(free, size)]}, {self.pool: started}
        self.world.do(events.QueueSeen(nodes, begun, shown, self.world.now()))
        for run_id in shown:
            wanted = self.world.state.runs[run_id].nice
            self.asked += wanted != self.nices[run_id]
            self.nices[run_id] = wanted
        self.queue()

    def first(self) -> Run:
        """The one that the scheduler starts next."""
        queue = self.queue()
        return self.world.state.runs[max(queue, key=lambda id: queue[id].place)]

    def order(self) -> list[int]:
        """Experiments whose jobs wait, in the order in which they start."""
        queue = self.queue()
        runs = sorted(queue, key=lambda id: queue[id].place, reverse=True)
        return [self.world.state.runs[id].experiment_id or 0 for id in runs]


def test_new_runs_step_back_as_far_as_those_before_them() -> None:
    world = World()
    first, second = create(world), create(world)
    runs = {run.experiment_id: run.id for run in world.live()}
    change(world, QueueChange(second, ahead_of=first))
    show = {runs[first]: PendingJob(1000, 0), runs[second]: PendingJob(999, 0)}
    world.do(events.QueueSeen({}, {}, show, world.now()))
    assert (world.state.runs[runs[first]].nice, world.state.runs[runs[second]].nice) == (2, 0)
    third, urgent = create(world), create(world, priority=1)
    nices = {run.experiment_id: run.nice for run in world.live()}
    assert (nices[third], nices[urgent]) == (2, 0)


@pytest.mark.parametrize("base", [0, 2, 1000])
def test_the_order_holds_in_the_schedulers_queue_whatever_priorities_it_gives(base: int) -> None:
    world = World()
    site = Site(world, base)
    first, second = create(world), create(world)
    site.look()
    urgent = create(world, priority=7)
    site.look()
    assert site.order() == [urgent, first, second]
    change(world, QueueChange(second, ahead_of=first))
    site.look()
    assert site.order() == [urgent, second, first]
    cost = site.asked, site.cancelled
    site.look()
    assert (site.asked, site.cancelled) == cost, "what is in order is left alone"
    assert not site.asked or base > LEAST, "what moves nothing is not asked for"
    world.assert_memory_is_a_fold_of_the_rows()


def test_fewer_wait_in_the_schedulers_queue_where_nice_orders_nothing_until_the_site_changes_its_weights() -> None:
    world = World()
    site = Site(world, base=0)
    create(world, trials=50)
    assert len(waiting(world)) == LEAST_WINDOW, "nobody has seen a priority yet"
    site.look()
    site.look()
    assert world.state.pools["main"].window == FEWEST
    assert len(waiting(world)) <= 2 * FEWEST
    for run in world.live():
        world.start(run)
    site.look()
    assert world.state.pools["main"].window == FEWEST, "that nothing waits tells nothing new"
    assert len(waiting(world)) == FEWEST
    site.base = 1000
    site.look()
    assert len(waiting(world)) == LEAST_WINDOW
    world.assert_memory_is_a_fold_of_the_rows()


def test_where_nice_orders_nothing_slots_stay_full_all_the_same() -> None:
    """Eight slots, between two looks each run ends once: the window grows to what starts, as everywhere."""
    world = World()
    site = Site(world, base=0)
    create(world, trials=500)
    running: list[Run] = []
    idle = []
    for _ in range(20):
        site.look(free=8 - len(running), started=len(running))
        for run in running:
            world.end(run, FINISHED)
        running = []
        while len(running) < 8 and site.queue():
            running.append(site.first())
            world.start(running[-1])
        idle.append(8 - len(running))
    assert idle == [0] * 20


@settings(max_examples=examples(60), deadline=None)
@given(
    st.sampled_from([0, 3, 12, 1000]),
    st.lists(
        st.tuples(
            st.sampled_from(["create", "create", "move", "priority", "start", "end", "look"]), st.integers(0, 99)
        ),
        min_size=5,
        max_size=30,
    ),
)
@pytest.mark.slow
def test_once_all_is_settled_the_scheduler_starts_in_our_order(base: int, actions: list[tuple[str, int]]) -> None:
    world = World()
    site = Site(world, base)
    for action, n in actions:
        ids = [e.row.id for e in world.state.active()]
        if action == "create":
            create(world, n % 9 + 1, slots_per_trial=n % 3 + 1, priority=n % 4 + 40)
        elif action == "look":
            site.look(free=n % 5)
        elif action == "start" and site.queue():
            world.start(site.first())
        elif action == "end" and (running := [run for run in world.live() if run.state is RunState.RUNNING]):
            world.end(running[n % len(running)], FINISHED)
        elif ids and action == "priority":
            change(world, QueueChange(ids[n % len(ids)], priority=n % 99 + 1))
        elif action == "move" and len(ids) > 1 and (one := ids[n % len(ids)]) != (other := ids[n * 7 % len(ids)]):
            change(world, QueueChange(one, ahead_of=other))
    for _ in range(12):
        site.look()
    cost = site.asked, site.cancelled
    site.look()
    assert (site.asked, site.cancelled) == cost, "there is an end to it"
    assert site.order() == waiting(world)
    world.assert_memory_is_a_fold_of_the_rows()


@pytest.mark.parametrize("base", [0, 1000])
def test_slots_are_shared_by_weight_whatever_priorities_the_scheduler_gives(base: int) -> None:
    """The lighter one is there first and fills the window; shares are what the engine's rows say that each was served."""
    world = World()
    world.state.rules = {"fair": Rules("fair_share")}
    site = Site(world, base, "fair")
    rng, ends = random.Random(7), []
    one = create(world, 400, "fair", weight=1.0)
    site.look()
    three = create(world, 400, "fair", weight=3.0)
    site.look()
    for turn in range(40):
        while len(ends) < 8:
            run = site.first()
            world.start(run)
            ends.append((world.clock + 50 * rng.uniform(0.5, 1.5), run))
        if turn % 4 == 0:
            site.look(started=4)
        ends.sort(key=lambda end: end[0])
        at, run = ends.pop(0)
        world.clock = max(world.clock, at)
        world.end(run, FINISHED)
    had = {id: world.state.jobs[world.state.experiments[id].row.queue_id].served(world.clock) for id in (one, three)}
    assert had[one] == pytest.approx(had[three], rel=0.1), "slot-seconds over weight"
    assert site.cancelled < 30, "only what the first look found too much"


# --- jobs that a person holds


def hold(world: World, run: Run) -> None:
    record = JobRecord(f"7{run.task_id}", "", JobState.PENDING, reason="JobHeldUser", priority=0, nice=0)
    world.do(events.JobSeen(run.id, record, world.now()))


@pytest.mark.parametrize("base", [0, 1000])
def test_jobs_held_by_hand_keep_nobody_waiting_and_are_not_taken_back(base: int) -> None:
    world = World()
    site = Site(world, base)
    first = create(world, trials=40)
    site.look()
    window = world.state.pools["main"].window
    held = world.live()
    for run in held:
        hold(world, run)
    second = create(world, priority=99)
    for _ in range(3):
        shown = {id: job for id, job in site.queue().items() if not world.state.runs[id].reason}
        world.do(events.QueueSeen({"main": [(0, 8)]}, {}, shown, world.now()))
    free = [run for run in world.live() if run not in held and not run.reason]
    assert [run.experiment_id for run in free] == [first] * window
    assert all(world.state.runs[run.id].intent is Intent.GO for run in held if run.id in world.state.runs)
    assert second not in waiting(world), "the first has trials that nobody holds"
