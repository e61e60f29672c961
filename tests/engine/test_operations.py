"""Trials that say how long they have trained by completing operations, in the configuration's unit."""

from __future__ import annotations

import math
from typing import Any

import pytest

from dethpc.domain.facts import SearchNote
from dethpc.domain.states import State
from tests.engine.world import World, config


def asha(**length: Any) -> World:
    world = World()
    searcher = config("adaptive_asha", max_trials=4, max_concurrent_trials=4, max_rungs=2, mode="aggressive", **length)
    world.create(**searcher, records_per_epoch=1000)
    for run in world.live():
        world.start(run)
    return world


def rungs(world: World) -> list[int]:
    return [note.data["rung"] for note in world.rows(SearchNote)]


@pytest.mark.parametrize("length", [{"time_metric": "epochs", "max_time": 16}, {"max_length": 16}])
def test_a_completed_operation_is_compared(length: dict[str, Any]) -> None:
    world = asha(**length)
    first, second = world.live()[:2]
    world.report(first, "searcher_op", length=4, metric=0.1)
    world.report(second, "searcher_op", length=4, metric=0.5)
    assert rungs(world) == [0, 0]
    assert world.trial(first).state is State.ACTIVE
    assert world.trial(second).state is State.STOPPING_COMPLETED
    assert world.trial(second).best_validation == 0.5
    world.assert_memory_is_a_fold_of_the_rows()


def test_steps_are_no_epochs() -> None:
    world = asha(time_metric="epochs", max_time=16)
    (run, *_) = world.live()
    world.report(run, "metrics", group="validation", steps_completed=500, metrics={"loss": 0.1})
    assert rungs(world) == []  # without a batch size nobody knows how many epochs that is
    world.report(run, "metrics", group="validation", steps_completed=500, metrics={"loss": 0.1, "epochs": 4})
    assert rungs(world) == [0]


def test_a_bare_length_leaves_it_to_operations() -> None:
    world = asha(max_length=16)
    (run, *_) = world.live()
    world.report(run, "metrics", group="validation", steps_completed=500, metrics={"loss": 0.1})
    assert rungs(world) == []
    assert world.trial(run).best_validation == 0.1


def test_a_metric_that_is_no_number_ranks_worst() -> None:
    world = asha(max_length=16)
    (run, *_) = world.live()
    world.report(run, "searcher_op", length=4, metric={"any": "thing"})
    assert world.trial(run).state is State.STOPPING_COMPLETED
    assert world.trial(run).best_validation is None
    world.report(run, "searcher_op", length=math.nan, metric=1.0)
    world.assert_memory_is_a_fold_of_the_rows()
