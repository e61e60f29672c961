"""What the node side reads of a configuration, against the model that wrote it."""

from __future__ import annotations

from typing import Any

import pytest

from dethpc.config import load
from dethpc.config.experiment import ExperimentConfig
from dethpc.domain.trial_config import BindMount, Length, SearcherConfig, TrialConfig

SECTIONS: list[dict[str, Any]] = [
    {"name": "single"},
    {"name": "single", "max_length": {"epochs": 3}},
    {"name": "random", "max_trials": 2, "max_length": {"batches": 30}},
    {"name": "grid", "max_length": {"records": 9}},
    {"name": "adaptive_asha", "max_trials": 4, "time_metric": "epochs", "max_time": 64},
    {"name": "async_halving", "max_trials": 4, "num_rungs": 2, "max_length": {"records": 640}},
    {"name": "adaptive_simple", "max_trials": 4, "max_length": {"batches": 16}},
    {"name": "sync_halving", "num_rungs": 2, "max_length": {"epochs": 16}, "budget": {"epochs": 64}},
]


@pytest.mark.parametrize("section", SECTIONS)
@pytest.mark.parametrize("smaller", [True, False])
def test_the_node_side_reads_a_searcher_as_the_master_does(section: dict[str, Any], smaller: bool) -> None:
    stored = {"entrypoint": "x", "searcher": {"metric": "loss", "smaller_is_better": smaller, **section}}
    config = ExperimentConfig.from_json(stored)
    found = SearcherConfig.of(config.to_json())
    assert (found.name, found.metric, found.smaller_is_better) == (section["name"], "loss", smaller)
    assert found.full_length == config.searcher.full_length()
    assert found.unit == (config.searcher.time_name() if found.full_length else None)


def test_every_default_of_a_trial_is_the_configurations() -> None:
    config = load("entrypoint: x\nsearcher: {name: single, metric: loss}\n").config
    found = TrialConfig.from_json(config.to_json())
    assert (found.checkpoint_policy, found.scheduling_unit) == (config.checkpoint_policy, config.scheduling_unit)
    assert found.min_validation_period == found.min_checkpoint_period == Length(0, "batches")
    assert (found.records_per_epoch, found.perform_initial_validation) == (0, False)
    assert (found.entrypoint, found.data, found.bind_mounts) == ("x", {}, ())
    assert not found.profiling_enabled and not found.debug


def test_what_a_configuration_says_reaches_the_trial() -> None:
    text = """
entrypoint: [python3, train.py]
searcher: {name: single, metric: loss, smaller_is_better: false}
data: {path: /d}
bind_mounts: [{host_path: /data, container_path: d}]
checkpoint_storage: {type: directory, container_path: /x}
min_validation_period: {epochs: 2}
scheduling_unit: 7
records_per_epoch: 50
profiling: {enabled: true}
debug: true
"""
    found = TrialConfig.from_json(load(text).config.to_json())
    assert (found.entrypoint, found.data) == (["python3", "train.py"], {"path": "/d"})
    assert found.bind_mounts == (BindMount("/data", "d"),) and found.checkpoint_storage["container_path"] == "/x"
    assert (found.min_validation_period, found.scheduling_unit) == (Length(2, "epochs"), 7)
    assert (found.records_per_epoch, found.profiling_enabled, found.debug) == (50, True, True)
    assert not found.searcher.smaller_is_better


def test_a_sketch_of_a_configuration_has_nothing_in_it() -> None:
    found = TrialConfig.from_json({})
    assert (found.searcher.metric, found.searcher.full_length, found.searcher.unit) == ("", None, None)


@pytest.mark.parametrize(
    "given", [["A=1", "B=x=y"], {"cpu": ["A=1"], "cuda": ["B=x=y"], "rocm": None}, {"cuda": ["A=1", "B=x=y", "C"]}]
)
def test_variables_are_told_whichever_slots_they_are_for(given: Any) -> None:
    found = TrialConfig.from_json({"environment": {"environment_variables": given}})
    assert found.variables == {"A": "1", "B": "x=y"} and TrialConfig.from_json({}).variables == {}
