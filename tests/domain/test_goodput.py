"""Where slots went. useful + lost + overhead = allocated, whatever happened."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dethpc.domain.facts import Attempt, Run
from dethpc.domain.goodput import Goodput, of_attempt, of_run
from dethpc.domain.ports import JobState
from dethpc.domain.states import AttemptState, End, RunState
from tests.engine.world import FINISHED, STOPPED, World, config


def attempt(begin: float = 0, end: float | None = 100, how: End | None = End.COMPLETED, **marks: Any) -> Attempt:
    state = AttemptState.RUNNING if how is None else AttemptState.ENDED
    return Attempt("1.1.1", 0, 1, "1.1", state, begin, None if how is None else end, end=how, **marks)


TRAINED = {"first_at": 20.0, "first_steps": 10, "last_at": 90.0, "last_steps": 80}


def test_a_whole_training_is_useful_from_its_first_step_to_its_last_report() -> None:
    # A step takes a second, so the first ten began at 10; after the last report it tidied up.
    assert of_attempt(attempt(**TRAINED), 2, 0) == Goodput(useful=160, lost=0, overhead=40)


def test_saving_is_overhead() -> None:
    assert of_attempt(attempt(saving=15.0, **TRAINED), 1, 0) == Goodput(useful=65, lost=0, overhead=35)


def test_a_failure_loses_what_was_trained_since_the_checkpoint() -> None:
    found = of_attempt(attempt(how=End.NODE_FAIL, saved_at=60.0, **TRAINED), 1, 0)
    assert found == Goodput(useful=50, lost=40, overhead=10)
    assert of_attempt(attempt(how=End.USER_ERROR, **TRAINED), 1, 0) == Goodput(useful=0, lost=90, overhead=10)


def test_what_a_later_attempt_trains_again_was_lost() -> None:
    found = of_attempt(attempt(how=End.PREEMPTED, saved_at=90.0, kept_at=30.0, **TRAINED), 1, 0)
    assert found == Goodput(useful=20, lost=60, overhead=20)


def test_who_saves_and_leaves_in_time_loses_nothing() -> None:
    assert of_attempt(attempt(how=End.PREEMPTED, saved_at=90.0, **TRAINED), 1, 0) == Goodput(80, 0, 20)
    assert of_attempt(attempt(how=End.STOPPED, saved_at=90.0, **TRAINED), 1, 0) == Goodput(80, 0, 20)


def test_what_runs_counts_until_now_and_what_never_trained_is_overhead() -> None:
    assert of_attempt(attempt(how=None, **TRAINED), 1, 200) == Goodput(190, 0, 10)
    assert of_attempt(attempt(how=None), 4, 50) == Goodput(overhead=200)
    assert of_attempt(attempt(how=End.LAUNCH_FAILED), 1, 0) == Goodput(overhead=100)
    assert of_attempt(attempt(how=End.COMPLETED), 1, 0) == Goodput(useful=100)


def test_one_report_tells_no_pace_and_a_resumed_one_starts_where_it_resumed() -> None:
    once = {"first_at": 20.0, "first_steps": 10, "last_at": 20.0, "last_steps": 10}
    assert of_attempt(attempt(**once), 1, 0) == Goodput(useful=20, overhead=80)
    assert of_attempt(attempt(resumed_steps=5, **TRAINED), 1, 0) == Goodput(useful=75, overhead=25)


TIMES = st.floats(-50, 200) | st.none()
STEPS = st.integers(0, 100) | st.none()


@given(
    begin=st.floats(0, 100),
    end=st.floats(0, 200) | st.none(),
    how=st.sampled_from([None, *End]),
    resumed=st.integers(0, 100),
    marks=st.fixed_dictionaries(
        {
            "first_at": TIMES,
            "first_steps": STEPS,
            "last_at": TIMES,
            "last_steps": STEPS,
            "saved_at": TIMES,
            "kept_at": TIMES,
            "saving": st.floats(0, 500) | st.none(),
        }
    ),
    slots=st.integers(0, 64),
    now=st.floats(0, 300),
)
def test_nothing_is_counted_twice_or_left_out(
    begin: float, end: float | None, how: End | None, resumed: int, marks: dict[str, Any], slots: int, now: float
) -> None:
    row = attempt(begin, end, how, resumed_steps=resumed, **marks)
    found = of_attempt(row, slots, now)
    held = max(0.0, (now if how is None or end is None else end) - begin) * slots
    assert found.useful >= 0 and found.lost >= 0 and found.overhead >= 0 and found.waiting == 0
    assert found.useful + found.lost + found.overhead == pytest.approx(held, abs=1e-6)


def test_waits_are_those_of_runs_before_and_between_their_starts() -> None:
    run = Run("1.1.1", 1, "1.1", 1, RunState.RUNNING, created_at=0.0, slots=2, pool="main")
    first = attempt(10, 20, End.NODE_FAIL)
    again = attempt(50, None, None)
    assert of_run(run, [], 7).waiting == 14
    assert of_run(run, [first], 30).waiting == 2 * (10 + 10), "queued again"
    assert of_run(run, [first, again], 60).waiting == 2 * (10 + 30)
    ended = Run("1.1.1", 1, "1.1", 1, RunState.ENDED, created_at=0.0, slots=2, pool="main", ended_at=5.0)
    assert of_run(ended, [], 60).waiting == 10, "cancelled before it started"
    over = Run("1.1.1", 1, "1.1", 1, RunState.ENDED, created_at=0.0, slots=2, pool="main", ended_at=25.0)
    assert of_run(over, [first], 60).waiting == 20


def test_the_engine_keeps_what_is_needed_for_it() -> None:
    world = World()
    experiment = world.create(searcher=config("single")["searcher"])
    (run,) = world.live()
    world.start(run)
    for step in range(1, 6):
        world.report(run, "metrics", group="training", steps_completed=step, metrics={"loss": 1.0})
        if step == 2:
            world.report(run, "checkpoint", uuid="c", steps_completed=2, resources={})
    world.end(run, None, JobState.NODE_FAIL)
    (first,) = world.rows(Attempt)
    assert (first.first_steps, first.last_steps) == (1, 5)
    assert first.first_at < first.saved_at < first.last_at
    lost_before = of_attempt(first, 1, 0).lost
    (run,) = world.live()
    world.start(run)
    first, second = world.rows(Attempt)
    assert first.kept_at == first.saved_at and of_attempt(first, 1, 0).lost == lost_before > 0
    world.report(run, "metrics", group="validation", steps_completed=6, metrics={"loss": 1.0})
    world.end(run, FINISHED)
    assert of_attempt(world.rows(Attempt)[1], 1, 0).lost == 0
    assert experiment.id in world.state.experiments
    world.assert_memory_is_a_fold_of_the_rows()


def test_a_pause_after_a_checkpoint_loses_nothing() -> None:
    world = World()
    world.create(searcher=config("single")["searcher"])
    (run,) = world.live()
    world.start(run)
    world.report(run, "metrics", group="training", steps_completed=1, metrics={"loss": 1.0})
    world.report(run, "metrics", group="training", steps_completed=2, metrics={"loss": 1.0})
    world.report(run, "checkpoint", uuid="c", steps_completed=2, resources={})
    from dethpc.engine import events

    world.do(events.Pause(run.experiment_id, world.now()))
    world.end(run, STOPPED)
    assert of_attempt(world.rows(Attempt)[0], 1, 0).lost == 0
