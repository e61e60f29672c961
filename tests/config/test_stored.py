"""The effective configuration as the database keeps it."""

from __future__ import annotations

from typing import Any

import pytest

from dethpc.config import load
from dethpc.config.experiment import ExperimentConfig
from dethpc.config.sections.searcher import WarmStart
from dethpc.errors import ConfigError

TEXT = """
entrypoint: python3 train.py
hyperparameters:
  lr: {type: log, minval: -5, maxval: -1, base: 10}
  layers: {width: 8, kind: {type: categorical, vals: [a, null, {b: 1}]}}
searcher: {name: adaptive_asha, metric: loss, time_metric: batches, max_time: 100, max_trials: 20, sampler: tpe}
checkpoint_storage: {type: shared_fs, host_path: /ckpt}
resources: {slots_per_trial: 2, resource_pool: main, devices: ["/dev/a:/dev/b"]}
environment: {image: x:1, environment_variables: [A=1]}
slurm: {sbatch_args: [--qos=high]}
preemption_timeout: 60
"""


def test_what_was_stored_is_read_back_as_it_was() -> None:
    config = load(TEXT).config
    again = ExperimentConfig.from_json(config.to_json())
    assert again == config and again.to_json() == config.to_json()


@pytest.mark.parametrize(
    "where", [(), ("searcher",), ("resources",), ("environment", "image"), ("checkpoint_storage",)]
)
def test_a_field_of_an_earlier_release_that_is_gone_does_not_keep_an_experiment_from_being_read(where: Any) -> None:
    config = load(TEXT).config
    stored = config.to_json()
    section = stored
    for name in where:
        section = section[name]
    section["field_of_release_0_0_1"] = 3
    assert ExperimentConfig.from_json(stored) == config


def test_a_field_that_a_later_release_added_has_its_default() -> None:
    stored = load(TEXT).config.to_json()
    for name in ("max_restarts", "reproducibility", "log_policies"):
        del stored[name]
    del stored["searcher"]["divisor"], stored["resources"]["weight"]
    assert ExperimentConfig.from_json(stored) == load(TEXT).config


def test_what_was_never_a_configuration_is_refused_with_the_field_that_is_wrong() -> None:
    with pytest.raises(ConfigError) as caught:
        ExperimentConfig.from_json({**load(TEXT).config.to_json(), "max_restarts": "many"})
    assert [problem.field for problem in caught.value.problems] == ["max_restarts"]


def test_a_configuration_moves_to_another_pool_whole() -> None:
    config = load(TEXT).config
    moved = config.in_pool("other")
    assert moved.resources.resource_pool == "other" and moved.in_pool("main") == config


def test_the_checkpoint_that_the_master_chose_of_a_source_trial_is_kept_beside_it() -> None:
    config = load(TEXT).config
    stored = config.to_json()
    stored["searcher"].update(source_trial_id=3, source_checkpoint_uuid="a1")
    found = ExperimentConfig.from_json(stored).searcher
    assert isinstance(found, WarmStart)
    assert (found.source_trial_id, found.source_checkpoint_uuid) == (3, "a1")


@pytest.mark.parametrize(
    "where, value",
    [
        ("log_policies", [{"name": "a", "pattern": "(?<=x)CUDA(?!y)"}]),
        ("log_policies", [{"name": "a", "pattern": r"(a)\1"}, {"name": "b", "pattern": "a" * 2000}]),
        ("min_validation_period", {"batches": 2**63}),
        ("searcher.sampler", {"name": "tpe", "n_startup_trials": 10**6}),
        ("searcher.max_rungs", 10**6),
    ],
)
def test_what_an_earlier_release_took_and_this_one_does_not_keeps_no_master_from_starting(
    where: str, value: Any
) -> None:
    stored = load(TEXT).config.to_json()
    section, _, field = where.rpartition(".")
    (stored[section] if section else stored)[field] = value
    assert ExperimentConfig.from_json(stored).to_json() == stored
