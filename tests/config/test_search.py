"""Searches that cannot be, and searches that will not be what was meant."""

from __future__ import annotations

from typing import Any

import pytest

from dethpc.config import load
from dethpc.config.source import dump
from dethpc.errors import ConfigError

ASHA = {"name": "adaptive_asha", "time_metric": "batches", "max_time": 256, "max_trials": 64}
PBT = {
    "name": "pbt",
    "population_size": 4,
    "num_rounds": 3,
    "length_per_round": {"batches": 10},
    "explore_function": {"resample_probability": 0.2, "perturb_factor": 0.1},
}
SIMPLE = {"name": "adaptive_simple", "max_length": {"batches": 256}}


def text(searcher: dict[str, Any], **hyperparameters: Any) -> str:
    section = {"metric": "loss", **searcher}
    return dump({"entrypoint": "x", "searcher": section, "hyperparameters": hyperparameters})


@pytest.mark.parametrize(
    ("searcher", "field", "words"),
    [
        ({**ASHA, "max_time": 3, "bracket_rungs": [4]}, "searcher.bracket_rungs", "at most 3, one unit of max_time"),
        ({**ASHA, "bracket_rungs": [0]}, "searcher.bracket_rungs[0]", ">= 1"),
        ({**ASHA, "name": "async_halving", "num_rungs": 5, "max_time": 4}, "searcher.num_rungs", "at most 4"),
        ({"name": "adaptive_simple", "max_trials": 3}, "searcher.max_length", "required"),
        ({"name": "random", "max_trials": 3, "sampler": 3}, "searcher.sampler", "sampler of Optuna"),
        ({"name": "random", "max_trials": 3, "sampler": {"multivariate": True}}, "searcher.sampler", "{name: tpe"),
    ],
)
def test_a_search_that_cannot_be_is_an_error(searcher: dict[str, Any], field: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(text(searcher))
    (problem,) = caught.value.problems
    assert problem.field == field
    assert words in str(problem)


@pytest.mark.parametrize(
    ("searcher", "words"),
    [
        ({**ASHA, "max_trials": 2, "bracket_rungs": [3, 2, 1]}, "the last 1 brackets get none"),
        ({**ASHA, "max_trials": 16, "max_rungs": 5}, "enough for 3 of the 5 rungs"),
        ({**ASHA, "max_trials": 3}, "no trial is stopped early"),
        ({**ASHA, "bracket_rungs": [5], "max_time": 64}, "leaves the first 2 of 5 rungs at length 1"),
        ({**ASHA, "stop_once": False}, "stop_once"),
        ({**SIMPLE, "max_trials": 2}, "there are 3 brackets and 2 trials"),
        ({"name": "adaptive", "max_length": {"batches": 256}, "budget": {"batches": 300}}, "it will be exceeded"),
        ({**PBT, "replace_function": {"truncate_fraction": 0.2}}, "no trial is ever replaced"),
    ],
)
def test_a_search_that_will_not_be_what_was_meant_gives_a_warning(searcher: dict[str, Any], words: str) -> None:
    (warning,) = load(text(searcher)).warnings
    assert words in warning


@pytest.mark.parametrize(
    "searcher",
    [
        ASHA,
        {**ASHA, "name": "async_halving", "num_rungs": 5},
        {**SIMPLE, "max_trials": 100},
        {"name": "adaptive", "max_length": {"batches": 256}, "budget": {"batches": 25600}},
        {**PBT, "replace_function": {"truncate_fraction": 0.25}},
        {"name": "random", "max_trials": 3, "sampler": "tpe"},
        {"name": "random", "max_trials": 3, "sampler": {"name": "tpe", "multivariate": True}},
    ],
)
def test_an_ordinary_search_gives_none(searcher: dict[str, Any]) -> None:
    loaded = load(text(searcher))
    assert loaded.warnings == []
    assert loaded.effective()["searcher"].items() >= searcher.items()


def test_a_grid_has_a_trial_for_each_point_and_so_a_limit() -> None:
    real = {"type": "double", "minval": 0, "maxval": 1, "count": 500}
    few = {"type": "int", "minval": 1, "maxval": 2, "count": 500}
    inner = {"type": "categorical", "vals": ["a", "b"]}
    load(text({"name": "grid"}, a=real, b=few, c={"inner": inner, "fixed": 3}))  # 2,000 points
    with pytest.raises(ConfigError) as caught:
        load(text({"name": "grid"}, a=real, b=real, c={"inner": inner}))
    (problem,) = caught.value.problems
    assert problem.field == "hyperparameters"
    assert problem.message == "the grid has 500,000 points, each a trial; at most 100,000 are possible"


@pytest.mark.parametrize(
    ("metric", "warned"),
    [
        ("val_acc", True),
        ("eval/F1", True),
        ("MeanReward", True),
        ("val acc/top1", True),
        ("validation_accuracy", True),
        ("validation_loss", False),
        ("accuracy_loss", False),
        ("neg_reward", False),
        ("q", False),
        ("accurate_seconds", False),
    ],
)
def test_a_metric_that_most_people_maximise_is_not_minimised_in_silence(metric: str, warned: bool) -> None:
    search = {"name": "random", "max_trials": 3, "metric": metric}
    warnings = load(text(search)).warnings
    assert [f"smallest {metric} is the best" in line for line in warnings] == [True] * warned
    for smaller_is_better in (True, False):
        assert load(text({**search, "smaller_is_better": smaller_is_better})).warnings == []


def test_a_trial_class_that_is_told_no_length_gives_a_warning() -> None:
    for name, more in (("single", {}), ("random", {"max_trials": 3}), ("grid", {})):
        search = {"name": name, "metric": "loss", **more}
        of_class = dump({"entrypoint": "model_def:Trial", "searcher": search})
        assert any("searcher.max_length is missing" in line for line in load(of_class).warnings)
        long = {**search, "max_length": {"batches": 10}}
        assert not any("max_length is" in line for line in load(dump({"entrypoint": "m:T", "searcher": long})).warnings)
        assert load(text(search)).warnings == [], "a script knows when it is done"


@pytest.mark.parametrize(
    ("entrypoint", "strange"),
    [
        ("python3 t.py --lr {learning_rate}", "learning_rate"),
        ("python3 t.py --lr={rate} --n {net.width}", "rate"),
        (["python3", "t.py", "{layers}"], "layers"),
        ("python3 t.py --lr {lr} --n {net.width} --all {net}", ""),
        ("python3 t.py {hparams...}", ""),
        ("python3 t.py {hparams...}; awk '{print $1}' x; echo ${HOME} {a,b} x{}", ""),
    ],
)
def test_a_reference_to_no_hyperparameter_gives_a_warning(entrypoint: Any, strange: str) -> None:
    space = {"lr": 0.1, "net": {"width": 3}}
    config = {"entrypoint": entrypoint, "searcher": {"name": "single", "metric": "loss"}, "hyperparameters": space}
    warnings = load(dump(config)).warnings
    assert [
        f"{{{strange}}} stays as it is: no hyperparameter has this name, only lr, net.width" in line
        for line in warnings
    ] == ([True] if strange else [])
