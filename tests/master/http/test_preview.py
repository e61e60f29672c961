"""What a search would train: counted by its own searcher, told over the API and by the published client."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dethpc.config.experiment import ExperimentConfig
from dethpc.errors import ConfigError
from dethpc.simulator.preview import preview
from tests.master.conftest import Published, Served

LR = {"lr": {"type": "log", "minval": -3, "maxval": -1, "base": 10.0}}


def counted(section: dict[str, Any], space: dict[str, Any], seed: int) -> Counter[float]:
    config = ExperimentConfig.from_json({"entrypoint": "x", "searcher": section, "hyperparameters": space})
    return preview(config.searcher, config.space, seed)


def section(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "metric": "loss", "smaller_is_better": True, **more}


def test_trials_that_nobody_compares_train_in_full() -> None:
    assert counted(section("single"), LR, 1) == {float("inf"): 1}
    assert counted(section("random", max_trials=5, max_length={"epochs": 3}), LR, 1) == {3: 5}
    grid = {"lr": {**LR["lr"], "count": 4}, "b": {"type": "categorical", "vals": [1, 2]}}
    assert counted(section("grid", max_length=7), grid, 1) == {7: 8}


@settings(max_examples=50, deadline=None)
@given(
    trials=st.integers(1, 200),
    concurrent=st.integers(1, 50),
    mode=st.sampled_from(["aggressive", "standard", "conservative"]),
    seed=st.integers(0, 1000),
)
def test_every_trial_of_a_comparing_search_is_counted_once(trials: int, concurrent: int, mode: str, seed: int) -> None:
    asha = section(
        "adaptive_asha",
        max_trials=trials,
        max_concurrent_trials=concurrent,
        time_metric="epochs",
        max_time=256,
        max_rungs=5,
        divisor=4,
        mode=mode,
    )
    found = counted(asha, LR, seed)
    assert sum(found.values()) == trials
    assert found[256] >= 1 and set(found) <= {1, 4, 16, 64, 256}
    assert counted(asha, LR, seed) == found


def test_a_population_is_counted_by_what_each_member_trains() -> None:
    pbt = section(
        "pbt",
        population_size=10,
        num_rounds=3,
        length_per_round={"batches": 100},
        replace_function={"truncate_fraction": 0.2},
        explore_function={"resample_probability": 0.2, "perturb_factor": 0.1},
    )
    found = counted(pbt, LR, 1)
    assert sum(found.values()) == 10 + 2 * 2
    assert sum(length * count for length, count in found.items()) == 10 * 3 * 100


def test_the_route_reads_any_generation_and_names_the_unit(served: Served) -> None:
    config = {
        "entrypoint": "model_def:Digits",
        "searcher": {"name": "random", "metric": "loss", "max_trials": 5, "max_steps": 10},
        "hyperparameters": LR,
    }
    summary = served.session.post("/api/v1/preview-hp-search", json={"config": config})["summary"]
    assert summary["trials"] == [{"count": 5, "unit": {"name": "batches", "value": 1000, "maxLength": False}}]
    assert summary["config"]["max_length"] == {"batches": 1000}
    config["searcher"] = {"name": "single", "metric": "loss"}
    summary = served.session.post("/api/v1/preview-hp-search", json={"config": config, "seed": 3})["summary"]
    assert summary["trials"] == [{"count": 1, "unit": {"name": None, "value": None, "maxLength": True}}]
    with pytest.raises(ConfigError, match="entrypoint"):
        served.session.post("/api/v1/preview-hp-search", json={"config": {"searcher": config["searcher"]}})


def test_the_published_client_shows_it(published: Published) -> None:
    file = published.folder / "config.yaml"
    file.write_text(
        "entrypoint: model_def:Digits\nsearcher: {name: random, metric: loss, max_trials: 5, max_length: {epochs: 3}}\n"
    )
    said = published.det("preview-search", str(file))
    assert "train for 3 epochs" in said and "Training Time" in said
    file.write_text("entrypoint: x\nsearcher: {name: single, metric: loss}\n")
    assert "train to completion" in published.det("preview-search", str(file))
