"""The simulated cluster and its figures, where they can be worked out by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest

from dethpc.config.experiment import ExperimentConfig
from dethpc.domain.states import State
from dethpc.errors import ConfigError, Refused
from dethpc.simulator import Faults, Pace, PowerLaw, Replay, Result, Site, simulate
from dethpc.simulator.cluster import PATIENCE, Cluster

SPACE = {"lr": {"type": "log", "minval": -3, "maxval": -1, "base": 10}}


def config(slots: int = 1, **searcher: Any) -> ExperimentConfig:
    data = {
        "entrypoint": "train",
        "searcher": {
            "name": "random",
            "metric": "loss",
            "smaller_is_better": True,
            "max_trials": 6,
            "max_concurrent_trials": 4,
            **searcher,
        },
        "hyperparameters": SPACE,
        "resources": {"slots_per_trial": slots},
    }
    return ExperimentConfig.from_json(data)


PACE = Pace(startup=10, step=2, length=20)  # a trial takes 50 s


def test_figures_are_what_arithmetic_says() -> None:
    result = simulate(config(), Site(1, 8), PACE)
    assert result.experiment.state is State.COMPLETED
    assert (len(result.trials), result.jobs, result.attempts, result.steps) == (6, 6, 6, 120)
    assert result.makespan == 100, "four trials, then two"
    assert result.slot_seconds == 300
    assert result.slots_over_time == [(0, 4), (50, 2), (100, 0)]
    assert result.slots_in(4) == [4, 4, 2, 2]
    assert result.waited == 0


def test_a_small_cluster_makes_trials_wait() -> None:
    result = simulate(config(slots=2), Site(1, 4), PACE)
    assert result.makespan == 150
    assert result.peak_slots == 4
    assert result.slot_seconds == 600
    assert result.waited == 200, "the third to the sixth wait for 50 s each"


def test_trials_over_several_nodes_take_whole_nodes() -> None:
    result = simulate(config(slots=8), Site(3, 4), PACE)
    assert result.makespan == 300, "one at a time: two of three nodes are held"


@pytest.mark.parametrize("slots, words", [(9, "multiple of 4"), (16, "the cluster has 8")])
def test_a_trial_that_can_never_start_is_refused(slots: int, words: str) -> None:
    with pytest.raises(Refused, match=words):
        simulate(config(slots=slots), Site(2, 4), PACE)


def test_the_same_seed_gives_the_same_simulation() -> None:
    faults = Faults(node_failure=500, preemption=100, loss=1000, user_error=0.1)

    def once(seed: int) -> Result:
        return simulate(
            config(), Site(2, 2, load=0.5), Pace(length=20, spread=0.3, checkpoint_each=1), seed=seed, faults=faults
        )

    assert once(1) == once(1)
    assert once(1).best != once(2).best


def test_the_chart_holds_every_slot_second() -> None:
    result = simulate(config(max_trials=30), Site(2, 2), Pace(length=20, spread=0.5), faults=Faults(node_failure=300))
    assert sum(result.slots_in(7)) * result.makespan / 7 == pytest.approx(result.slot_seconds)


def test_others_jobs_make_it_take_longer() -> None:
    alone = simulate(config(max_trials=40), Site(2, 4), Pace(length=100, step=10))
    crowded = simulate(config(max_trials=40), Site(2, 4, load=0.9), Pace(length=100, step=10))
    assert crowded.makespan > 1.5 * alone.makespan
    assert crowded.slot_seconds == alone.slot_seconds
    assert crowded.waited > 0


def test_preempted_trials_go_on_from_their_checkpoint() -> None:
    faults = Faults(preemption=40)
    result = simulate(config(), Site(1, 8), PACE, faults=faults)
    assert result.attempts > 6 and result.jobs == 6, "requeued, not submitted again"
    assert result.steps == 120, "nothing was trained twice"


def test_a_lost_node_costs_what_came_after_the_checkpoint() -> None:
    result = simulate(config(), Site(4, 1), Pace(startup=10, step=2, length=20, checkpoint_each=1), faults=Faults(60))
    assert all(trial.state is State.COMPLETED for trial in result.trials)
    assert result.steps > 120


def test_a_job_overtakes_a_larger_one_but_not_for_ever() -> None:
    cluster = Cluster(1, 4)
    cluster.submit("a", 3, 0)
    cluster.submit("large", 4, 0)
    cluster.submit("b", 1, 0)
    assert cluster.start(0) == ["a", "b"]
    cluster.release("b")
    cluster.submit("c", 1, 1)
    assert cluster.start(PATIENCE + 1) == [], "the large one has waited long enough"
    cluster.release("a")
    assert cluster.start(PATIENCE + 2) == ["large"]


def test_jobs_fill_the_fullest_node_first() -> None:
    cluster = Cluster(2, 4)
    for job_id, slots in (("a", 3), ("b", 2), ("c", 1)):
        cluster.submit(job_id, slots, 0)
    cluster.start(0)
    assert [cluster.held[job_id][0] for job_id in "abc"] == [[0], [1], [0]]


def test_a_failed_node_takes_its_jobs_along_and_gets_none() -> None:
    cluster = Cluster(2, 2)
    for job_id in "abc":
        cluster.submit(job_id, 1, 0)
    cluster.start(0)
    assert cluster.fail(0) == ["a", "b"]
    cluster.release("a")
    cluster.submit("d", 2, 0)
    assert cluster.start(0) == []
    cluster.release("b")
    cluster.repair(0)
    assert cluster.start(0) == ["d"]


def test_curves_of_an_earlier_experiment() -> None:
    text = "trial,step,loss,other\n7,10,0.5,x\n7,20,0.3,x\n9,10,0.9,\n9,20,,\n"
    curves = Replay.read(text.splitlines(), "loss")
    assert curves.length == 20
    values = [[curves.validate(None, {}, trial, step) for step in (5, 10, 15, 20, 99)] for trial in (0, 1, 2)]
    assert values[0] == pytest.approx([0.5, 0.5, 0.4, 0.3, 0.3])
    assert values[1] == [0.9] * 5
    assert values[2] == values[0]


@pytest.mark.parametrize(
    "text, words",
    [
        ("", "no column named trial"),
        ("trial,step\n1,2\n", "no column named loss"),
        ("trial,step,loss\n1,2,low\n", "numbers"),
        ("trial,step,loss\n1,2,\n", "no row has a value"),
    ],
)
def test_curves_that_cannot_be_read_say_why(text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Replay.read(text.splitlines(), "loss", "old.csv")


def test_the_model_falls_with_steps_and_has_a_best_place() -> None:
    space = {
        **SPACE,
        "size": {"type": "int", "minval": 1, "maxval": 9},
        "a": {"b": {"type": "categorical", "vals": [1, 2]}},
    }
    model = PowerLaw(space, seed=3, noise=0)
    hparams = {"lr": 1e-2, "size": 4, "a": {"b": 1}}
    curve = [model.validate(steps, hparams, 0, steps) for steps in (1, 10, 100)]
    assert curve == sorted(curve, reverse=True)
    finals = {model.validate(100, {**hparams, "lr": 10**x}, 0, 100) for x in (-3, -2, -1)}
    assert len(finals) == 3 and all(0 < value < 1 for value in finals)
    upward = PowerLaw(space, seed=3, noise=0, smaller_is_better=False)
    assert upward.validate(10, hparams, 0, 10) == pytest.approx(1 - curve[1])


def test_a_search_in_which_nothing_works_ends() -> None:
    broken = simulate(config(), Site(1, 8), PACE, faults=Faults(user_error=1.0))
    assert broken.experiment.state is State.ERROR
    assert "simulated error" in broken.experiment.reason
    lost = simulate(config(), Site(1, 8), PACE, faults=Faults(loss=0.001))
    assert lost.experiment.state is State.ERROR


def test_a_metric_that_is_never_a_number_is_nobodys_best() -> None:
    result = simulate(config(), Site(1, 8), PACE, faults=Faults(nan=1.0))
    assert result.best == [] and result.experiment.state is State.COMPLETED
    assert not math.isnan(result.makespan)
