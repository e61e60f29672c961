"""Configurations of older generations: each field of theirs, and what it is today."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dethpc.config import Loaded, load
from dethpc.config.dialects import translate
from dethpc.config.dialects.units import Unknown, convert, trained
from dethpc.config.experiment import ExperimentConfig
from dethpc.config.loading import warnings
from dethpc.config.source import dump
from dethpc.errors import ConfigError, Problem

PBT = {
    "name": "pbt",
    "population_size": 4,
    "num_rounds": 3,
    "replace_function": {"truncate_fraction": 0.2},
    "explore_function": {"resample_probability": 0.2, "perturb_factor": 0.1},
}
ASHA = {"name": "adaptive_asha", "max_trials": 4}


def loaded(searcher: dict[str, Any], **more: Any) -> Loaded:
    data = {"entrypoint": "model_def:Digits", "searcher": {"metric": "loss", **searcher}, **more}
    return load(dump(data), file="c.yaml")


def searcher_of(searcher: dict[str, Any], **more: Any) -> dict[str, Any]:
    """The section as it is today, whether or not the method can run yet."""
    translation = translate({"entrypoint": "model_def:Digits", "searcher": {"metric": "loss", **searcher}, **more})
    assert translation.problems == []
    found: dict[str, Any] = ExperimentConfig.model_validate(translation.data).model_dump(mode="json")["searcher"]
    return found


def problems_of(searcher: dict[str, Any], **more: Any) -> list[Problem]:
    with pytest.raises(ConfigError) as caught:
        loaded(searcher, **more)
    return caught.value.problems


# --- steps ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "method", [{"name": "single"}, {"name": "random", "max_trials": 5}, {"name": "grid"}], ids=lambda m: m["name"]
)
def test_max_steps_is_a_length_in_batches(method: dict[str, Any]) -> None:
    assert searcher_of({**method, "max_steps": 10})["max_length"] == {"batches": 1000}


def test_batches_per_step_is_the_size_of_a_step_and_the_scheduling_unit() -> None:
    found = loaded({"name": "single", "max_steps": 10}, batches_per_step=20)
    assert found.effective()["searcher"]["max_length"] == {"batches": 200}
    assert found.effective()["scheduling_unit"] == 20
    assert found.translated == [
        "c.yaml:6: batches_per_step: 20 -> scheduling_unit: 20 (its name today)",
        "c.yaml:5: searcher.max_steps: 10 -> searcher.max_length: {batches: 200} (a step is 20 batches)",
    ]


@pytest.mark.parametrize("period", ["min_validation_period", "min_checkpoint_period"])
def test_a_period_is_in_steps_where_the_configuration_speaks_of_steps(period: str) -> None:
    assert loaded({"name": "single", "max_steps": 10}, **{period: 2}).effective()[period] == {"batches": 200}
    assert loaded({"name": "grid"}, batches_per_step=10, **{period: 2}).effective()[period] == {"batches": 20}
    found = loaded({"name": "single"}, **{period: 2})
    assert found.effective()[period] == {"batches": 2}
    assert "its unit when it names none" in found.translated[0]


@pytest.mark.parametrize("value", [0, {"batches": 7}, {"epochs": 1}])
def test_a_period_with_its_unit_stays(value: Any) -> None:
    whole = loaded({"name": "single", "max_steps": 10}, min_validation_period=value).effective()
    assert whole["min_validation_period"] == (value or {"batches": 0})


def test_adaptive_has_a_length_for_each_trial_and_a_budget_for_all() -> None:
    found = searcher_of({"name": "adaptive", "target_trial_steps": 256, "step_budget": 2560, "divisor": 3})
    assert (found["max_length"], found["budget"]) == ({"batches": 25600}, {"batches": 256000})
    assert (found["mode"], found["divisor"], found["max_rungs"]) == ("standard", 3.0, 5)


def test_adaptive_simple_counts_trials() -> None:
    found = searcher_of({"name": "adaptive_simple", "max_steps": 64, "max_trials": 20, "mode": "aggressive"})
    assert (found["max_length"], found["max_trials"], found["mode"]) == ({"batches": 6400}, 20, "aggressive")


def test_population_based_training_counts_a_round_in_steps() -> None:
    found = searcher_of({**PBT, "steps_per_round": 5}, batches_per_step=10)
    assert found["length_per_round"] == {"batches": 50}
    assert found.items() >= PBT.items()


def test_source_and_direction_need_no_translation() -> None:
    found = searcher_of({"name": "single", "max_steps": 1, "source_trial_id": 3, "smaller_is_better": False})
    assert (found["source_trial_id"], found["smaller_is_better"]) == (3, False)
    (problem,) = problems_of({"name": "single", "max_steps": 1, "source_trial_id": 3, "source_checkpoint_uuid": "u"})
    assert problem.field == "searcher.source_checkpoint_uuid"


@pytest.mark.parametrize(
    ("searcher", "more", "field", "words"),
    [
        ({"name": "single", "max_steps": 0}, {}, "searcher.max_steps", "a whole number >= 1 (of steps)"),
        ({"name": "single", "max_steps": "many"}, {}, "searcher.max_steps", "a whole number >= 1"),
        (
            {"name": "single", "max_steps": 1, "max_length": 2},
            {},
            "searcher.max_steps",
            "set max_length or max_steps, not both",
        ),
        (
            {"name": "single", "max_steps": 1},
            {"batches_per_step": 0},
            "batches_per_step",
            "a whole number >= 1 (of batches)",
        ),
        (
            {"name": "single", "max_steps": 1},
            {"batches_per_step": 5, "scheduling_unit": 5},
            "batches_per_step",
            "not both",
        ),
        ({"name": "single", "max_steps": 1}, {"min_validation_period": -1}, "min_validation_period", "(of steps)"),
        ({"name": "single", "step_budget": 1}, {}, "searcher.step_budget", "adaptive"),
        ({"name": "singel", "max_steps": 1}, {}, "searcher.name", "'single'"),
    ],
)
def test_a_mistake_in_steps_is_one_problem(
    searcher: dict[str, Any], more: dict[str, Any], field: str, words: str
) -> None:
    (problem,) = problems_of(searcher, **more)
    assert problem.field == field and problem.file == "c.yaml" and problem.line
    assert words in str(problem)


def test_in_steps_single_needs_a_length_and_constants() -> None:
    (problem,) = problems_of({"name": "single"}, batches_per_step=10)
    assert problem.field == "searcher.max_steps" and "missing" in problem.message
    space = {"lr": {"type": "log", "base": 10, "minval": -3, "maxval": -1}, "net": {"k": {"type": "const", "val": 1}}}
    (problem,) = problems_of({"name": "single", "max_steps": 1}, hyperparameters=space)
    assert problem.field == "hyperparameters.lr" and "a constant" in problem.message
    assert loaded({"name": "random", "max_steps": 1, "max_trials": 2}, hyperparameters=space)
    assert "draws one value at random" in loaded({"name": "single"}, hyperparameters=space).warnings[0]


def test_an_older_trial_class_is_asked_for_its_batch_size() -> None:
    assert "global_batch_size is missing" in loaded({"name": "single", "max_steps": 1}).warnings[-1]
    assert not loaded({"name": "single", "max_steps": 1}, hyperparameters={"global_batch_size": 8}).warnings
    (warning,) = loaded({"name": "single"}).warnings
    assert warning.startswith("searcher.max_length is missing"), "and nothing of a batch size"


def test_an_option_may_be_of_an_older_generation() -> None:
    text = "entrypoint: x\nsearcher: {name: single, metric: loss}\n"
    found = load(text, overrides=["searcher.max_steps=3"])
    assert found.effective()["searcher"]["max_length"] == {"batches": 300}
    assert found.translated[0].startswith("--config searcher.max_steps: searcher.max_steps: 3 -> ")


# --- lengths ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("unit", ["batches", "records", "epochs"])
@pytest.mark.parametrize(
    "method", [{"name": "adaptive_asha"}, {"name": "async_halving", "num_rungs": 3}], ids=lambda m: m["name"]
)
def test_the_length_of_a_search_that_compares_is_time_today(method: dict[str, Any], unit: str) -> None:
    found = searcher_of({**method, "max_trials": 8, "max_length": {unit: 64}})
    assert (found["time_metric"], found["max_time"]) == (unit, 64)
    assert "max_length" not in found


def test_steps_come_all_the_way_to_time() -> None:
    found = searcher_of({"name": "adaptive_asha", "max_trials": 8, "max_steps": 64})
    assert (found["time_metric"], found["max_time"]) == ("batches", 6400)


@pytest.mark.parametrize("length", [5, {"batches": 5}, {"records": 5}, {"epochs": 5}])
def test_a_length_that_is_only_trained_to_stays(length: Any) -> None:
    found = loaded({"name": "single", "max_length": length})
    assert found.effective()["searcher"]["max_length"] == length
    assert found.translated == []


def test_a_bare_length_is_of_any_unit_and_that_is_said() -> None:
    searcher = {"name": "adaptive_asha", "max_trials": 8, "max_length": 16}
    assert searcher_of(searcher)["max_length"] == 16
    config = ExperimentConfig.model_validate({"entrypoint": "x", "searcher": {"metric": "loss", **searcher}})
    assert any("searcher.operations()" in doubt for doubt in warnings({}, config))


def test_both_ways_to_say_time_are_one_too_many() -> None:
    searcher = {
        "name": "adaptive_asha",
        "max_trials": 8,
        "max_length": {"epochs": 3},
        "time_metric": "e",
        "max_time": 3,
    }
    assert "searcher.max_length" in [problem.field for problem in problems_of(searcher)]


def test_a_budget_gets_the_unit_of_the_length() -> None:
    searcher = {"name": "adaptive", "max_length": {"batches": 100}, "budget": {"epochs": 3}}
    found = searcher_of(searcher, records_per_epoch=1000, hyperparameters={"global_batch_size": 64})
    assert found["budget"] == {"batches": 46}


@pytest.mark.parametrize(
    ("more", "missing"),
    [
        ({"hyperparameters": {"global_batch_size": 64}}, "or set records_per_epoch to a number"),
        ({"records_per_epoch": 1000}, "or set hyperparameters.global_batch_size to a number"),
        (
            {
                "records_per_epoch": 1000,
                "hyperparameters": {"global_batch_size": {"type": "categorical", "vals": [1, 2]}},
            },
            "or set hyperparameters.global_batch_size to a number",
        ),
    ],
)
def test_what_a_conversion_lacks_is_named(more: dict[str, Any], missing: str) -> None:
    searcher = {"name": "adaptive", "max_length": {"batches": 100}, "budget": {"epochs": 3}}
    problems = {problem.field: problem for problem in problems_of(searcher, **more)}
    assert missing in str(problems["searcher.budget"].hint)


# --- units ------------------------------------------------------------------------------------------------------------


def test_units_convert_by_records() -> None:
    per_epoch, hparams = 1000, {"global_batch_size": {"type": "const", "val": 50}}
    assert convert(2, "epochs", "batches", per_epoch, hparams) == 40
    assert convert(40, "batches", "records", per_epoch, hparams) == 2000
    assert convert(500, "records", "epochs", per_epoch, hparams) == 0.5
    assert convert(7, "epochs", "epochs", None, {}) == 7
    with pytest.raises(Unknown, match="records_per_epoch"):
        convert(1, "epochs", "records", None, {})


@pytest.mark.parametrize(
    ("searcher", "metrics", "length"),
    [
        ({**ASHA, "time_metric": "epochs", "max_time": 9}, {"epochs": 2.5}, 2.5),
        ({**ASHA, "time_metric": "epochs", "max_time": 9}, {"epochs": "NaN"}, math.nan),
        ({**ASHA, "time_metric": "epochs", "max_time": 9}, {}, 3.0),
        ({**ASHA, "time_metric": "batches", "max_time": 9}, {}, 60.0),
        ({**ASHA, "time_metric": "minutes", "max_time": 9}, {}, math.nan),
        ({**ASHA, "max_length": {"epochs": 9}}, {}, 3.0),
        ({**ASHA, "max_length": 9}, {}, math.nan),
        ({**ASHA, "max_length": 9}, {"batches": 3}, math.nan),
        ({**PBT, "length_per_round": {"batches": 5}}, {}, 60.0),
        ({"name": "single"}, {}, 60.0),
    ],
)
def test_how_long_a_trial_has_trained(searcher: dict[str, Any], metrics: dict[str, Any], length: float) -> None:
    data = {"entrypoint": "x", "searcher": {"metric": "loss", **searcher}, "records_per_epoch": 1000}
    config = ExperimentConfig.model_validate(data)
    found = trained(config, {"global_batch_size": 50}, {"loss": 1.0, **metrics}, 60)
    assert found == length or (math.isnan(found) and math.isnan(length))


@given(st.integers(1, 1000), st.integers(1, 10**6), st.integers(1, 4096))
def test_a_length_in_epochs_is_reached_with_its_last_whole_batch(epochs: int, per_epoch: int, batch: int) -> None:
    searcher = {**ASHA, "metric": "loss", "time_metric": "epochs", "max_time": epochs}
    data = {"entrypoint": "x", "searcher": searcher, "records_per_epoch": per_epoch}
    config = ExperimentConfig.model_validate(data)
    steps = epochs * per_epoch // batch
    assert steps == 0 or trained(config, {"global_batch_size": batch}, {}, steps) >= epochs
    if steps > 1:
        assert trained(config, {"global_batch_size": batch}, {}, steps - 1) < epochs
