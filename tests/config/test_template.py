"""Templates: what is wrong in one, and what becomes of a configuration over one."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dethpc.config.loading import load, merged
from dethpc.config.source import dump, read
from dethpc.config.template import Template, check, laid_over, of_experiments
from dethpc.errors import ConfigError


def over(own: Any, template: Any) -> Any:
    with laid_over(dump(own), Template("t", template)) as text:
        source, problems = read(text, "config")
    assert not problems
    return source.data


MOUNT = {"host_path": "/a", "container_path": "/a"}
OTHER = {"host_path": "/b", "container_path": "/b"}
DOUBLE = {"type": "double", "minval": 0, "maxval": 1}


@pytest.mark.parametrize(
    ("field", "own", "template", "result"),
    [
        ("bind_mounts", [MOUNT], [{**OTHER, "container_path": "/a"}, OTHER], [MOUNT, OTHER]),
        ("labels", ["x"], ["y", "x"], ["x", "y"]),
        (
            "log_policies",
            [{"name": "a", "pattern": "x"}],
            [{"name": "a"}, {"name": "b"}],
            [{"name": "a", "pattern": "x"}, {"name": "b"}],
        ),
        (
            "environment",
            {"environment_variables": ["A=1"]},
            {"environment_variables": ["B=2"]},
            {"environment_variables": ["B=2", "A=1"]},
        ),
        ("environment", {"add_capabilities": ["X"]}, {"add_capabilities": ["Y"]}, {"add_capabilities": ["X"]}),
        (
            "slurm",
            {"sbatch_args": ["-A x"]},
            {"sbatch_args": ["-A y"], "gpu_type": "a"},
            {"sbatch_args": ["-A x"], "gpu_type": "a"},
        ),
        ("entrypoint", ["python3"], ["bash", "x"], ["python3"]),
        ("data", {"a": {"b": 1}}, {"a": {"b": 2, "c": 3}, "d": [4]}, {"a": {"b": 1, "c": 3}, "d": [4]}),
        ("max_restarts", None, 3, 3),
        (
            "hyperparameters",
            {"lr": DOUBLE},
            {"lr": {"type": "double", "minval": 5, "maxval": 9, "count": 3}},
            {"lr": DOUBLE},
        ),
        ("hyperparameters", {"n": {"a": 1}}, {"n": {"b": 2}, "m": 3}, {"n": {"a": 1, "b": 2}, "m": 3}),
        (
            "searcher",
            {"name": "single", "max_length": {"batches": 1}},
            {"name": "random", "max_trials": 9, "max_length": {"epochs": 2}, "metric": "m", "source_trial_id": 3},
            {"name": "single", "max_length": {"batches": 1}, "metric": "m", "source_trial_id": 3},
        ),
        (
            "searcher",
            {"name": "random", "metric": "a"},
            {"name": "random", "max_trials": 9},
            {"name": "random", "metric": "a", "max_trials": 9},
        ),
        (
            "checkpoint_storage",
            {"type": "shared_fs", "host_path": "/a"},
            {"type": "s3", "bucket": "b", "save_trial_best": 5},
            {"type": "shared_fs", "host_path": "/a", "save_trial_best": 5},
        ),
    ],
)
def test_the_experiments_own_counts_and_lists_are_joined_where_determined_joins_them(
    field: str, own: Any, template: Any, result: Any
) -> None:
    assert over({field: own}, {field: template})[field] == result


_names = st.sampled_from("abc")
_trees = st.recursive(
    st.integers(0, 9) | st.lists(st.integers(0, 3), max_size=2),
    lambda inner: st.dictionaries(_names, inner, max_size=3),
    max_leaves=8,
)
_data = st.dictionaries(_names, _trees, max_size=3)


def _merge(own: Any, template: Any) -> Any:
    if not (isinstance(own, dict) and isinstance(template, dict)):
        return own
    both = {key: _merge(own[key], template[key]) for key in own if key in template}
    return {**template, **own, **both}


@given(_data, _data)
def test_mappings_merge_at_every_level(own: Any, first: Any) -> None:
    def merge(upper: Any, lower: Any) -> Any:
        return over({"data": upper}, {"data": lower})["data"]

    before = json.dumps(first)
    assert merge(own, first) == _merge(own, first)
    assert json.dumps(first) == before, "the template stays as it is"
    assert merge(own, {}) == own and merge({}, first) == first and merge(own, own) == own


@given(_data)
def test_a_template_of_parts_of_a_valid_configuration_is_valid(data: Any) -> None:
    whole = {
        "data": data,
        "searcher": {"name": "adaptive_asha", "metric": "x", "max_trials": 4, "time_metric": "b", "max_time": 9},
        "checkpoint_storage": {"type": "s3", "bucket": "b", "save_trial_best": 2},
        "resources": {"slots_per_trial": 2},
        "hyperparameters": {"lr": DOUBLE},
    }
    load(dump({**whole, "entrypoint": "x"}))
    for name, section in whole.items():
        check(Template("t", {name: section}))
        for key in section if name != "hyperparameters" else ():
            check(Template("t", {name: {key: section[key]}}))


@pytest.mark.parametrize(
    ("config", "field", "words"),
    [
        ({"nome": 3}, "nome", "unknown field"),
        ({"max_restarts": "x"}, "max_restarts", "whole number"),
        ({"resources": 3}, "resources", "a mapping"),
        ({"searcher": {"metrc": "x"}}, "searcher.metrc", "metric"),
        ({"searcher": {"metric": 3}}, "searcher.metric", "text"),
        ({"searcher": {"name": "sngle"}}, "searcher.name", "single"),
        ({"searcher": {"name": "single", "max_trials": 3}}, "searcher.max_trials", "unknown"),
        ({"checkpoint_storage": {"bukket": "x"}}, "checkpoint_storage.bukket", "bucket"),
        ({"checkpoint_storage": {"save_trial_best": -1}}, "checkpoint_storage.save_trial_best", ">= 0"),
        ({"hyperparameters": {"lr": {"type": "double", "minval": 0}}}, "hyperparameters.lr", "maxval"),
        ({"bind_mounts": [{"host_path": "/x"}]}, "bind_mounts[0].container_path", "missing"),
        ({"resources": {"slots": 3}, "max_restarts": 1}, "resources.slots", "not supported yet"),
        ({"idle_timeout": "soon"}, "idle_timeout", "unknown field"),
    ],
)
def test_a_mistake_in_a_template_is_told(config: Any, field: str, words: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        check(Template("t", config))
    (problem,) = refusal.value.problems
    assert problem.field.startswith(field) and words in str(problem) and str(problem).startswith("template t: ")


@pytest.mark.parametrize(
    "config",
    [
        {"resources": {"slots": 0}},
        {"resources": {"agent_label": "", "slots": 100}, "environment": {"environment_variables": ["A=1"]}},
        {"entrypoint": ["bash", "-l"], "idle_timeout": "30m", "notebook_idle_type": "activity"},
        {"tensorboard_args": ["--samples_per_plugin=images=100"], "work_dir": "/tmp"},
    ],
)
def test_a_template_for_tasks_is_valid(config: Any) -> None:
    check(Template("t", config))


def test_the_slots_of_tasks_are_left_out_for_experiments() -> None:
    template = Template("t", {"resources": {"slots": 0, "weight": 2}, "labels": ["a"]})
    of_its_own, (note,) = of_experiments(template)
    assert of_its_own == Template("t", {"resources": {"weight": 2}, "labels": ["a"]})
    assert "resources.slots of template 't' is for tasks" in note
    assert of_experiments(of_its_own) == (of_its_own, [])


def test_a_template_of_an_older_form_is_understood() -> None:
    older = {"searcher": {"name": "single", "metric": "x", "max_steps": 3}, "batches_per_step": 10}
    check(Template("t", older))
    assert over({"entrypoint": "x"}, older)["searcher"]["max_length"] == {"batches": 30}
    assert merged("entrypoint: x\n", {"max_restarts": 1}) == "entrypoint: x\nmax_restarts: 1\n"
