"""Experiment configurations, from text to effective."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from dethpc.config import load, with_overrides
from dethpc.config.experiment import ExperimentConfig
from dethpc.config.secrets import masked_text
from dethpc.config.sections.services import USUAL_LOG_POLICIES, LogPolicy
from dethpc.config.source import dump
from dethpc.config.unsupported import _NOT_WORTH_A_WARNING, FIELDS, IGNORED, TRIAL_CLASS, UNSUPPORTED
from dethpc.errors import ConfigError, Problem
from tests.example_counts import examples

LEAST = "entrypoint: python3 train.py\nsearcher: {name: single, metric: loss}\n"


def problems_of(text: str, **options: Any) -> list[Problem]:
    with pytest.raises(ConfigError) as caught:
        load(text, **options)
    return caught.value.problems


def effective(text: str, **options: Any) -> dict[str, Any]:
    return load(text, **options).effective()


# --- what is accepted -------------------------------------------------------------------------------------------------


def test_the_least_configuration_gets_every_default() -> None:
    whole = effective(LEAST)
    assert whole["searcher"] == {
        "name": "single",
        "metric": "loss",
        "smaller_is_better": True,
        "source_trial_id": None,
        "source_checkpoint_uuid": None,
    }
    assert whole["max_restarts"] == 5
    assert whole["scheduling_unit"] == 100
    assert whole["min_validation_period"] == {"batches": 0}
    assert whole["checkpoint_policy"] == "best"
    assert whole["resources"] == {
        "slots_per_trial": 1,
        "max_slots": None,
        "weight": 1.0,
        "priority": None,
        "resource_pool": "",
        "is_single_node": None,
        "native_parallel": False,
        "shm_size": None,
        "devices": [],
    }
    assert whole["environment"]["environment_variables"] == {"cpu": [], "cuda": [], "rocm": []}
    assert whole["slurm"] == whole["pbs"] == whole["data"] == whole["hyperparameters"] == {}
    assert whole["reproducibility"] == {"experiment_seed": None}


FULL = """\
name: everything
description: all that has an effect
labels: [a, b]
workspace: team
project: digits
data: {url: s3://x, nested: {any: [1, null]}}
entrypoint: [python3, -m, determined.launch.torch_distributed, --, python3, train.py]
max_restarts: 2
preemption_timeout: 120
hyperparameters:
  lr: {type: log, minval: -4, maxval: -1, base: 10, count: 3}
  net: {width: {type: int, minval: 8, maxval: 64, count: 2}, act: {type: categorical, vals: [relu, tanh]}}
  drop: {type: double, minval: 0.0, maxval: 5e-1, count: 2}
  batch: 64
searcher:
  name: grid
  metric: accuracy
  smaller_is_better: false
  max_concurrent_trials: 4
  max_length: {batches: 100}
  source_checkpoint_uuid: 7c1a
resources: {slots_per_trial: 8, max_slots: 64, weight: 2, priority: 10, resource_pool: a100, is_single_node: false}
environment: {environment_variables: [A=1, "B=x=y z"]}
reproducibility: {experiment_seed: 2147483647}
checkpoint_storage: {type: shared_fs, host_path: /scratch, storage_path: ckpt, save_trial_best: 2}
slurm: {sbatch_args: [--time=05:00], slots_per_node: 4, gpu_type: a100}
profiling: {enabled: true}
"""


def test_every_field_that_has_an_effect_is_taken_over() -> None:
    whole = effective(FULL)
    given_ = yaml.safe_load(FULL.replace("5e-1", "0.5"))
    for field in (
        "name",
        "description",
        "labels",
        "workspace",
        "project",
        "data",
        "entrypoint",
        "max_restarts",
        "slurm",
    ):
        assert whole[field] == given_[field]
    for section in ("searcher", "resources", "reproducibility", "checkpoint_storage"):
        assert whole[section].items() >= given_[section].items()
    assert whole["hyperparameters"]["batch"] == {"type": "const", "val": 64}
    assert whole["hyperparameters"]["net"] == given_["hyperparameters"]["net"]
    assert load(FULL).config.environment.variables("cuda") == {"A": "1", "B": "x=y z"}


@pytest.mark.parametrize("text", [LEAST, FULL])
def test_the_effective_configuration_is_json_and_loads_to_itself(text: str) -> None:
    whole = effective(text)
    assert effective(json.dumps(whole)) == whole
    assert effective(dump(whole)) == whole


def test_the_original_text_is_kept() -> None:
    text = "# mine\n" + LEAST
    assert load(text).original == text


def test_null_means_the_default() -> None:
    assert effective(LEAST + "resources: null\nslurm: {sbatch_args: null}\nmax_restarts: null\n") == effective(LEAST)


@pytest.mark.parametrize(
    "storage",
    [
        {"type": "shared_fs", "host_path": "/x"},
        {"type": "shared_fs", "host_path": "/x", "storage_path": "/x/y"},
        {"type": "directory", "container_path": "/x"},
    ],
)
def test_storage_on_file_systems_is_accepted(storage: dict[str, Any]) -> None:
    assert effective(LEAST + dump({"checkpoint_storage": storage}))["checkpoint_storage"].items() >= storage.items()


@pytest.mark.parametrize("variables", ["{cpu: [A=1], gpu: [B=2]}", "{cpu: [A=1], cuda: [B=2]}"])
def test_gpu_is_the_older_name_of_cuda(variables: str) -> None:
    whole = effective(LEAST + f"environment: {{environment_variables: {variables}}}")
    assert whole["environment"]["environment_variables"] == {"cpu": ["A=1"], "cuda": ["B=2"], "rocm": []}


def test_older_numbers_are_numbers() -> None:
    assert effective(LEAST + "resources: {weight: 1e-1, slots_per_trial: 2.0}\n")["resources"]["weight"] == 0.1


@given(name=st.text(), labels=st.lists(st.text()), data=st.dictionaries(st.text(), st.integers() | st.text()))
@settings(deadline=None)
def test_free_text_and_data_come_through_unharmed(name: str, labels: list[str], data: dict[str, Any]) -> None:
    whole = effective(LEAST + dump({"name": name, "labels": labels, "data": data}))
    assert (whole["name"], whole["labels"], whole["data"]) == (name, labels, data)


# --- what is wrong ----------------------------------------------------------------------------------------------------


def test_five_mistakes_are_five_problems_on_their_lines() -> None:
    text = """\
name: digits
entrypoint: python3 train.py
resources:
  slots_per_trail: 4
  priority: 100
searcher:
  name: random
  metric: loss
  max_trials: many
hyperparameters:
  lr:
    type: log
    minval: -1
    maxval: -5
    base: 10
max_restart: 3
"""
    problems = problems_of(text, file="c.yaml")
    assert [(p.file, p.line, p.field) for p in problems] == [
        ("c.yaml", 4, "resources.slots_per_trail"),
        ("c.yaml", 5, "resources.priority"),
        ("c.yaml", 9, "searcher.max_trials"),
        ("c.yaml", 14, "hyperparameters.lr.maxval"),
        ("c.yaml", 16, "max_restart"),
    ]
    assert problems[0].hint == "did you mean 'slots_per_trial'?"
    assert (problems[1].found, problems[1].allowed) == ("100", "a number <= 99")
    assert (problems[2].found, problems[2].allowed) == ("'many'", "a whole number")
    assert problems[4].hint == "did you mean 'max_restarts'?"


@pytest.mark.parametrize(
    ("text", "field", "words"),
    [
        ("slots_per_trial: 4", "slots_per_trial", "it belongs at resources.slots_per_trial"),
        (
            "checkpoint_storage: {type: shared_fs, host_path: /x, bucket: b}",
            "checkpoint_storage.bucket",
            "it goes with type s3, gcs",
        ),
        ("resources: {batches_per_step: 100}", "resources.batches_per_step", "it belongs at the top level"),
        ("resources: {max_slots: 2, slots_per_trial: 4}", "resources.max_slots", "below slots_per_trial (4)"),
        ("resources: {slots_per_trial: true}", "resources.slots_per_trial", "a whole number"),
        ("resources: 3", "resources", "a mapping with slots_per_trial"),
        ("name: 3", "name", "put it in quotes"),
        ("labels: x", "labels", "a list"),
        ("labels: [x, 3]", "labels[1]", "must be text, not 3"),
        ("max_restarts: -1", "max_restarts", ">= 0"),
        ("checkpoint_policy: bst", "checkpoint_policy", "did you mean 'best'"),
        ("min_validation_period: {batch: 1}", "min_validation_period", "{batches: N}"),
        ("min_validation_period: {batches: -1}", "min_validation_period", "N >= 0"),
        ("reproducibility: {experiment_seed: 2147483648}", "reproducibility.experiment_seed", "<= 2147483647"),
        ("bind_mounts: [{host_path: x, container_path: /y}]", "bind_mounts[0].host_path", "an absolute path"),
        ("bind_mounts: [{host_path: /x, container_path: .}]", "bind_mounts[0].container_path", "below"),
        ("bind_mounts: [{host_path: /x, container_path: ../y}]", "bind_mounts[0].container_path", "below"),
        ("bind_mounts: [{host_path: /x, container_path: a/../..}]", "bind_mounts[0].container_path", "below"),
        ("environment: {environment_variables: [A]}", "environment.environment_variables[0]", "NAME=VALUE"),
        ("environment: {environment_variables: {cpu: [=1]}}", "environment.environment_variables.cpu[0]", "NAME=VALUE"),
        ("environment: {environment_variables: 3}", "environment.environment_variables", "a list of NAME=VALUE"),
        ("checkpoint_storage: {type: s4}", "checkpoint_storage.type", "did you mean 's3'"),
        ("checkpoint_storage: {type: shared_fs}", "checkpoint_storage.host_path", "required"),
        ("checkpoint_storage: {type: shared_fs, host_path: /x, bucket: y}", "checkpoint_storage.bucket", "unknown"),
        (
            "checkpoint_storage: {type: shared_fs, host_path: /x, storage_path: ../y}",
            "checkpoint_storage.storage_path",
            "below host_path",
        ),
        ("checkpoint_storage: {type: gcs, bucket: b, prefix: a/../b}", "checkpoint_storage.prefix", "without '..'"),
        (
            "checkpoint_storage: {type: s3, bucket: b, endpoint_url: 'http://me:hunter2@x/'}",
            "checkpoint_storage.endpoint_url",
            "not http://********@x/",
        ),
        (
            "checkpoint_storage: {type: s3, bucket: b, endpoint_url: 'me:hunter2@x/'}",
            "checkpoint_storage.endpoint_url",
            "not ********@x/",
        ),
        (
            "checkpoint_storage: {type: s3, bucket: b, endpoint_url: 'http://me:hun/ter2@x/'}",
            "checkpoint_storage.endpoint_url",
            "not http://********@x/",
        ),
        ("profiling: {begin_on_batch: 5, end_after_batch: 4}", "profiling.end_after_batch", "begin_on_batch (5)"),
        ("log_policies: [{pattern: '('}]", "log_policies[0].pattern", "no regular expression"),
        ("log_policies: [{name: x, pattern: '[[:alpha:]]'}]", "log_policies[0].pattern", "of both RE2 and Python's re"),
        ("log_policies: [{pattern: x}]", "log_policies[0]", "a name"),
        ("log_policies: [{name: x, action: explode}]", "log_policies[0].action", "cancel_retries"),
        ("internal: {}", "internal", "may not be set"),
        ("internal: {environment: other}", "internal", "may not be set"),
        ("data: 3", "data", "a mapping"),
        ("hyperparameters: 3", "hyperparameters", "a mapping"),
    ],
)
def test_a_mistake_is_named_with_what_is_allowed(text: str, field: str, words: str) -> None:
    found = [problem for problem in problems_of(LEAST + text) if problem.field == field]
    assert len(found) == 1
    assert words in str(found[0])
    assert found[0].line == 3


@pytest.mark.parametrize(
    ("searcher", "field", "words"),
    [
        ("{metric: loss}", "searcher.name", "there are single, random"),
        ("{name: single}", "searcher.metric", "required"),
        ("{name: random, metric: loss}", "searcher.max_trials", "required"),
        ("{name: random, metric: loss, max_trials: 0}", "searcher.max_trials", ">= 1"),
        ("{name: single, metric: loss, max_trials: 3}", "searcher.max_trials", "unknown"),
        ("{name: single, metric: loss, max_length: 0}", "searcher.max_length", "N >= 1"),
        (
            "{name: single, metric: loss, source_trial_id: 1, source_checkpoint_uuid: x}",
            "searcher.source_checkpoint_uuid",
            "not both",
        ),
        ("{name: adaptive_asha, metric: loss, max_trials: 3, max_time: 4}", "searcher.time_metric", "go together"),
        ("{name: adaptive_asha, metric: l, max_trials: 3, max_length: 3, mode: fast}", "searcher.mode", "aggressive"),
        ("{name: adaptive_asha, metric: l, max_trials: 3, max_length: 3, divisor: 1}", "searcher.divisor", "> 1"),
        ("random", "searcher", "a mapping"),
    ],
)
def test_a_searcher_is_checked_by_its_method(searcher: str, field: str, words: str) -> None:
    found = [p for p in problems_of(f"entrypoint: x\nsearcher: {searcher}\n") if p.field == field]
    assert len(found) == 1 and words in str(found[0])


@pytest.mark.parametrize("entrypoint", ["''", "[]", "[python3, 3]", "{a: 1}", "3"])
def test_an_entrypoint_is_a_command(entrypoint: str) -> None:
    (problem,) = problems_of(f"entrypoint: {entrypoint}\nsearcher: {{name: single, metric: x}}\n")
    assert problem.field == "entrypoint" and "a command" in problem.allowed


def test_what_is_required_is_missed() -> None:
    assert [problem.field for problem in problems_of("name: x")] == ["entrypoint", "searcher"]


def test_a_grid_needs_the_count_of_each_range() -> None:
    text = (
        "entrypoint: x\nsearcher: {name: grid, metric: l}\nhyperparameters:\n  a: {type: int, minval: 1, maxval: 2}\n"
    )
    (problem,) = problems_of(text)
    assert (problem.field, problem.line) == ("hyperparameters.a.count", 4)


def test_secrets_are_not_shown() -> None:
    text = LEAST + "checkpoint_storage: {type: s3, bucket: b, secret_key: [hunter2], access_key: 12345}\n"
    text += "environment: {environment_variables: {cpu: ['=hunter2']}}\n"
    message = "\n".join(map(str, problems_of(text)))
    assert "hunter2" not in message and "12345" not in message
    assert "secret_key" in message


def test_broken_yaml_is_one_problem_with_its_line() -> None:
    (problem,) = problems_of("entrypoint: x\nsearcher: [\n", file="c.yaml")
    assert (problem.file, problem.field) == ("c.yaml", "YAML")


@given(text=st.text())
@settings(deadline=None)
def test_no_text_does_more_than_cause_problems(text: str) -> None:
    with pytest.raises(ConfigError):
        load(text)


@given(
    field=st.sampled_from(sorted(ExperimentConfig.model_fields)),
    value=st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["type", "name", "a"]), inner),
        max_leaves=5,
    ),
)
@settings(deadline=None, max_examples=examples(300))
def test_any_value_in_any_field_is_accepted_or_a_problem_of_that_field(field: str, value: Any) -> None:
    data = {"entrypoint": "x", "searcher": {"name": "single", "metric": "l"}, field: value}
    try:
        load(dump(data))
    except ConfigError as error:
        for problem in error.problems:
            assert problem.field.split(".")[0].split("[")[0] == field
            assert problem.message


# --- overrides and defaults -------------------------------------------------------------------------------------------


def test_overrides_are_read_as_yaml() -> None:
    whole = effective(
        LEAST + "slurm:\nhyperparameters: {lr: {type: log, minval: -2, maxval: -1, base: 10}, net: {a: 1}, "
        "width: {type: int, minval: 1, maxval: 9}}\n",
        overrides=[
            "resources.slots_per_trial=4",
            "slurm.sbatch_args=[--time=05:00, --mem=1G]",
            "description=a = b",
            "hyperparameters.lr=1e-3",
            "hyperparameters.width.count=2",
            "hyperparameters.net={b: 2}",
            "hyperparameters.new.x={type: categorical, vals: [1, 2]}",
            "name=null",
        ],
    )
    assert whole["resources"]["slots_per_trial"] == 4
    assert whole["slurm"]["sbatch_args"] == ["--time=05:00", "--mem=1G"]
    assert whole["description"] == "a = b"
    assert whole["hyperparameters"]["lr"] == {"type": "const", "val": 0.001}
    assert whole["hyperparameters"]["width"] == {"type": "int", "minval": 1, "maxval": 9, "count": 2}
    assert set(whole["hyperparameters"]["net"]) == {"a", "b"}
    assert whole["hyperparameters"]["new"]["x"]["vals"] == [1, 2]
    assert whole["name"] == ""


@pytest.mark.parametrize("option", ["searcher.name=random", "searcher={name: random}"])
def test_a_search_that_becomes_another_keeps_the_fields_that_both_have(option: str) -> None:
    text = "entrypoint: e\nsearcher: {name: adaptive_asha, metric: m, time_metric: t, max_time: 9, max_trials: 7}\n"
    search = effective(text, overrides=[option])["searcher"]
    assert (search["name"], search["metric"], search["max_trials"]) == ("random", "m", 7)
    assert "time_metric" not in search
    with pytest.raises(ConfigError, match="searcher.name"):
        effective(text, overrides=["searcher.name=randm"])
    with pytest.raises(ConfigError, match="time_metric"):
        effective(text.replace("adaptive_asha", "random"), overrides=["searcher.name=random"])


@pytest.mark.parametrize(
    ("option", "field", "words"),
    [
        ("resources.slots_per_trial=x", "resources.slots_per_trial", "--config resources.slots_per_trial: "),
        ("resources.slotz=x", "resources.slotz", "unknown"),
        ("hyperparameters.lr.x=1", "hyperparameters.lr.x", "--config hyperparameters.lr.x: "),
        ("name", "override", "--config: override: must be KEY=VALUE, with dots between nested keys, not 'name'"),
        ("a..b=1", "override", "KEY=VALUE"),
        ("labels=[a", "labels", "--config labels: the file ends inside [ ... ]"),
    ],
)
def test_a_wrong_override_is_named_as_such(option: str, field: str, words: str) -> None:
    text = LEAST + "hyperparameters: {lr: {type: double, minval: 0, maxval: 1}}\n"
    (problem,) = problems_of(text, overrides=[option])
    assert problem.field == field and problem.line is None and words in str(problem)


def test_a_mistyped_option_is_a_mistake_whatever_comes_after_it() -> None:
    options = ["searcher.max_trials=3", "searcher.max_concurent_trials=1", "searcher.name=random"]
    for overrides in (options, options[::-1], ["searcher={max_trials: 3, max_concurent_trials: 1, name: random}"]):
        (problem,) = problems_of(LEAST, overrides=overrides)
        assert problem.field == "searcher.max_concurent_trials", overrides


@pytest.mark.parametrize("option", ["searcher.max_length.epochs=3", "searcher.max_length={epochs: 3}"])
def test_a_length_in_another_unit_replaces_the_one_that_is_there(option: str) -> None:
    text = "entrypoint: x\nsearcher: {name: single, metric: loss, max_length: {batches: 20}}\n"
    assert effective(text, overrides=[option])["searcher"]["max_length"] == {"epochs": 3}


def test_two_units_in_one_length_are_a_mistake() -> None:
    text = "entrypoint: x\nsearcher: {name: single, metric: loss, max_length: {batches: 20}}\n"
    (problem,) = problems_of(text, overrides=["searcher.max_length={batches: 2, epochs: 3}"])
    assert problem.field == "searcher.max_length"


def test_overrides_can_be_worked_into_the_text() -> None:
    text = with_overrides(LEAST + "name: '1e-3'\n", ["resources.priority=3"])
    assert effective(text) == effective(LEAST + "name: '1e-3'\nresources: {priority: 3}\n")


DEFAULTS = {
    "checkpoint_storage": {"type": "shared_fs", "host_path": "/default", "save_trial_best": 3},
    "resources": {"resource_pool": "main", "weight": 2},
    "labels": ["site"],
    "environment": {"environment_variables": ["A=site", "B=site"]},
    "max_restarts": 1,
}


def test_defaults_fill_what_the_user_left_out() -> None:
    whole = effective(LEAST + "resources: {weight: 5}\nmax_restarts: null\nlabels: [mine]\n", defaults=DEFAULTS)
    assert whole["checkpoint_storage"]["host_path"] == "/default"
    assert (whole["resources"]["resource_pool"], whole["resources"]["weight"]) == ("main", 5)
    assert whole["max_restarts"] == 1
    assert whole["labels"] == ["mine", "site"]


USUAL = [
    {"name": "CUDA OOM", "pattern": ".*CUDA out of memory.*"},
    {"name": "ECC Error", "pattern": ".*uncorrectable ECC error encountered.*"},
]


@pytest.mark.parametrize("mine", ["", "log_policies: null\n", "log_policies: []\n"])
def test_everybody_has_the_usual_log_policies(mine: str) -> None:
    assert effective(LEAST + mine)["log_policies"] == USUAL


def test_a_log_policy_whose_action_never_happens_is_told() -> None:
    (warning,) = load(LEAST + "log_policies: [{name: CUDA OOM, action: cancel_retries}]\n", file="c.yaml").warnings
    assert "takes the usual policy of that name away and cancel_retries never happens; give it a pattern" in warning
    assert load(LEAST + "log_policies: [{name: CUDA OOM}]\n", file="c.yaml").warnings == []


def test_log_policies_are_joined_by_name_and_a_name_alone_takes_one_away() -> None:
    site = {"log_policies": [{"pattern": "site", "action": "exclude_node"}, {"name": "n", "pattern": "site's"}]}
    mine = "log_policies:\n- {pattern: mine, action: {type: cancel_retries}}\n- {name: n, pattern: mine}\n- {name: CUDA OOM}\n"
    assert effective(LEAST + mine, defaults=site)["log_policies"] == [
        {"pattern": "mine", "action": "cancel_retries"},
        {"name": "n", "pattern": "mine"},
        {"name": "CUDA OOM"},
        {"pattern": "site", "action": "exclude_node"},
        USUAL[1],
    ]


def test_of_equal_variables_the_users_counts() -> None:
    for mine in ("[A=mine]", "{cuda: [A=mine]}"):
        loaded = load(LEAST + f"environment: {{environment_variables: {mine}}}\n", defaults=DEFAULTS)
        assert loaded.config.environment.variables("cuda") == {"A": "mine", "B": "site"}


def test_storage_of_another_type_takes_only_what_all_types_share() -> None:
    whole = effective(LEAST + "checkpoint_storage: {type: directory, container_path: /x}\n", defaults=DEFAULTS)
    assert whole["checkpoint_storage"] == {
        "type": "directory",
        "container_path": "/x",
        "save_experiment_best": 0,
        "save_trial_best": 3,
        "save_trial_latest": 1,
    }


def test_storage_without_a_type_is_the_sites() -> None:
    text = LEAST + "checkpoint_storage: {save_trial_latest: 5}\n"
    assert not load(text, file="c.yaml").warnings
    assert (
        effective(text, defaults=DEFAULTS)["checkpoint_storage"].items()
        >= {"type": "shared_fs", "save_trial_latest": 5}.items()
    )
    (problem,) = problems_of(text, defaults={})
    assert problem.field == "checkpoint_storage.type" and "there are shared_fs" in problem.message


def test_defaults_are_left_as_they_were() -> None:
    before = json.dumps(DEFAULTS)
    load(LEAST + "labels: [x]\n", defaults=DEFAULTS, overrides=["checkpoint_storage.save_trial_best=1"])
    assert json.dumps(DEFAULTS) == before


def test_a_mistake_in_the_defaults_says_whose_it_is() -> None:
    (problem,) = problems_of(LEAST, defaults={"resources": {"priority": 1000}})
    assert problem.file == "the master's defaults" and problem.line is None


# --- what has no effect yet -------------------------------------------------------------------------------------------

EXAMPLES = {
    "checkpoint_storage.checkpoint_path": "x",
    "optimizations.mixed_precision": "O2",
    "resources.native_parallel": True,
    "resources.slots": 3,
    "integrations.pachyderm": {
        "pachd": {"host": "h", "port": 1},
        "proxy": {"scheme": "s", "host": "h", "port": 1},
        "dataset": {"project": "p", "repo": "r", "commit": "c", "branch": "b", "token": "t"},
    },
}
CONTEXTS: dict[str, dict[str, Any]] = {
    "checkpoint_storage": {"type": "shared_fs", "host_path": "/x"},
    "data_layer.local_cache_container_path": {"type": "s3", "bucket": "b", "bucket_directory_path": "p"},
}


def configuration(field: str, value: Any) -> dict[str, Any]:
    data: dict[str, Any] = {"entrypoint": "x", "searcher": {"name": "single", "metric": "l"}}
    section, _, name = field.partition(".")
    if not name:
        data[section] = value
        return data
    around = CONTEXTS.get(field, CONTEXTS.get(section, {}))
    data[section] = {**data.get(section, {}), **around, name: value}
    return data


def test_every_refused_field_has_an_example_here() -> None:
    assert set(EXAMPLES) == set(FIELDS)


def test_slots_are_those_of_commands() -> None:
    (problem,) = problems_of(dump(configuration("resources.slots", EXAMPLES["resources.slots"])))
    assert "it is for commands and other tasks; for trials, use slots_per_trial" in problem.message


@pytest.mark.parametrize("field", FIELDS)
def test_a_field_without_effect_is_refused_and_nothing_else_is_wrong_with_it(field: str) -> None:
    (problem,) = problems_of(dump(configuration(field, EXAMPLES[field])))
    assert problem.field == field
    assert " is not supported yet: " in problem.message
    assert "hunter2" not in str(problem)


@pytest.mark.parametrize(("field", "fine"), [(row.field, fine) for row in UNSUPPORTED for fine in row.fine])
def test_its_default_may_be_spelled_out(field: str, fine: Any) -> None:
    load(dump(configuration(field, fine)))


@pytest.mark.parametrize(
    "searcher",
    [
        {
            "name": "adaptive_asha",
            "max_trials": 4,
            "max_length": 10,
            "bracket_rungs": [1],
            "max_rungs": 2,
            "mode": "standard",
        },
        {
            "name": "async_halving",
            "max_trials": 4,
            "num_rungs": 2,
            "time_metric": "epochs",
            "max_time": 3,
            "stop_once": True,
        },
        {"name": "custom", "unit": "batches"},
        {"name": "adaptive_simple", "max_trials": 4, "max_length": {"epochs": 1}},
        {"name": "adaptive", "budget": {"batches": 90}, "max_length": {"batches": 9}, "train_stragglers": False},
        {"name": "sync_halving", "budget": {"batches": 90}, "max_length": {"batches": 9}, "num_rungs": 2},
        {
            "name": "pbt",
            "population_size": 4,
            "num_rounds": 3,
            "length_per_round": {"batches": 10},
            "replace_function": {"truncate_fraction": 0.2},
            "explore_function": {"resample_probability": 0.2, "perturb_factor": 0.1},
        },
    ],
    ids=lambda searcher: searcher["name"],
)
def test_every_search_method_is_read(searcher: dict[str, Any]) -> None:
    data = {"entrypoint": "x", "searcher": {"metric": "l", "smaller_is_better": False, **searcher}}
    assert effective(dump(data))["searcher"].items() >= searcher.items()


@pytest.mark.parametrize(
    "storage",
    [
        {"type": "s3", "bucket": "b", "access_key": "k", "secret_key": "s", "endpoint_url": "http://x", "prefix": "p"},
        {"type": "gcs", "bucket": "b", "prefix": "p"},
        {"type": "azure", "container": "c", "connection_string": "s"},
        {"type": "azure", "container": "c", "account_url": "u", "credential": "s"},
        {"type": "hdfs", "hdfs_url": "http://n:50070", "hdfs_path": "/x", "user": "u"},
    ],
    ids=lambda storage: storage["type"],
)
def test_every_kind_of_storage_is_read(storage: dict[str, Any]) -> None:
    data = {"entrypoint": "x", "searcher": {"name": "single", "metric": "l"}, "checkpoint_storage": storage}
    assert effective(dump(data))["checkpoint_storage"].items() >= storage.items()


def test_a_refused_field_is_said_beside_other_mistakes() -> None:
    problems = problems_of(LEAST + "resources: {slots: 3, slots_per_trial: y}\n")
    assert sorted(p.field for p in problems) == ["resources.slots", "resources.slots_per_trial"]


def test_a_section_for_another_scheduler_changes_nothing_beside_that_for_slurm() -> None:
    text = LEAST + "slurm: {sbatch_args: [--time=1:00:00]}\n"
    both = load(text + "pbs: {pbsbatch_args: ['-l walltime=1:00:00'], slots_per_node: 4}\n", file="c.yaml")
    assert both.config.slurm == load(text, file="c.yaml").config.slurm and len(both.warnings) == 2


@pytest.mark.parametrize("field", IGNORED)
def test_a_field_that_is_accepted_without_effect_gives_a_warning(field: str) -> None:
    values = {
        "checkpoint_storage.propagation": "shared",
        "data_layer.container_storage_path": "/x",
        "data_layer.local_cache_container_path": "/x",
        "checkpoint_storage.tensorboard_path": "x",
        "profiling.begin_on_batch": 5,
        "profiling.end_after_batch": 9,
        "profiling.sync_timings": False,
        "resources.shm_size": "4 GiB",
        "resources.devices": ["/dev/a:/dev/b:rw"],
        "environment.image": "docker://x",
        "environment.force_pull_image": True,
        "environment.registry_auth": {"username": "me", "password": "hunter2"},
        "environment.ports": {"x": 80},
        "environment.add_capabilities": ["CAP"],
        "environment.drop_capabilities": ["CAP"],
        "environment.pod_spec": {"spec": {}},
        "bind_mounts": [{"host_path": "/x", "container_path": "/y"}],
        "pbs.slots_per_node": 1,
        "pbs.pbsbatch_args": ["-l x"],
        "debug": True,
        "optimizations.grad_updates_size_file": "x",
        "security": {},
        "tensorboard_storage": {"type": "s3"},
        "min_validation_period": {"batches": 100},
        "min_checkpoint_period": {"epochs": 1},
        "checkpoint_policy": "all",
        "scheduling_unit": 50,
        "resources.weight": 2,
        "perform_initial_validation": True,
        "optimizations": {"aggregation_frequency": 2},
    }
    value = values.get(field, 1 if "save_" in field else "x")
    loaded = load(dump(configuration(field, value)), file="c.yaml")
    (warning,) = [text for text in (*loaded.warnings, *loaded.without_container) if field in text]
    assert (warning in loaded.without_container or warning.startswith("c.yaml:")) and "hunter2" not in warning


def test_whatever_containers_would_give_is_one_warning() -> None:
    text = LEAST + "environment:\n  image: {cpu: x}\n  force_pull_image: true\nresources: {shm_size: 4g}\n"
    loaded = load(text, file="c.yaml")
    (warning,) = loaded.without_container
    assert loaded.warnings == []  # whether there is a container says the site
    assert warning.startswith("environment.image, environment.force_pull_image, resources.shm_size have no effect")


def test_only_mounts_that_change_a_path_are_warned_of() -> None:
    mounts = [
        {"host_path": "/data", "container_path": "/data"},
        {"host_path": "/data", "container_path": "data"},
        {"host_path": "/data", "container_path": "/run/determined/workdir/data"},
        {"host_path": "/data/mnist", "container_path": "/mnist"},
    ]
    (warning,) = load(dump(configuration("bind_mounts", mounts))).without_container
    assert "bind_mounts.3" in warning and "/mnist is what the node has there, not /data/mnist" in warning


@pytest.mark.parametrize(
    ("field", "usual"), [(field, value) for field, usual in _NOT_WORTH_A_WARNING.items() for value in usual]
)
def test_a_default_that_is_spelled_out_gives_no_warning(field: str, usual: Any) -> None:
    assert load(dump(configuration(field, usual))).warnings == []


@pytest.mark.parametrize(
    "entrypoint",
    [
        "model_def:Outer.MyTrial",
        "python3 -m determined.launch.torch_distributed --trial model_def:MyTrial",
        "python3 -m determined.launch.torch_distributed model_def:MyTrial",
    ],
)
@pytest.mark.parametrize("field", sorted(TRIAL_CLASS))
def test_what_is_for_trial_classes_gives_no_warning_where_one_is_trained(field: str, entrypoint: str) -> None:
    values = {
        "checkpoint_policy": "all",
        "scheduling_unit": 7,
        "perform_initial_validation": True,
    }
    value = values.get(field, {"gradient_compression": True} if field == "optimizations" else {"batches": 3})
    data = {**configuration(field, value), "entrypoint": entrypoint}
    data["searcher"] = {"name": "single", "metric": "loss", "max_length": {"batches": 9}}
    assert load(dump(data)).warnings == []


def test_what_is_perhaps_not_meant_gives_a_warning() -> None:
    text = (
        LEAST + "hyperparameters: {a: {b: {type: int, minval: 1, maxval: 2}}, c: [{type: int, minval: 1, maxval: 2}]}\n"
    )
    one, two = load(text).warnings
    assert "hyperparameters.a.b" in one and "hyperparameters.c" in two


def test_a_configuration_that_the_master_showed_may_come_back_with_its_note_which_counts_for_nothing() -> None:
    known = load(LEAST + "internal: {environment: recorded}").config
    assert known.keeps_environment is False
    stored = ExperimentConfig.from_json(known.with_environment().to_json())
    assert stored.keeps_environment is True and "internal" not in known.to_json()


def test_credentials_of_a_registry_are_a_name_and_a_password_or_a_token() -> None:
    def auth(**fields: str) -> str:
        return LEAST + dump({"environment": {"registry_auth": fields}})

    kept = load(auth(username="me", password="x", server="registry:5000")).config.environment.registry_auth
    assert kept is not None and kept.serveraddress == "registry:5000"
    assert load(auth(identitytoken="t"))
    for fields, field in (
        ({"username": "me"}, "password"),
        ({"server": "registry"}, "username"),
        ({"username": "me", "password": "x", "server": "a", "serveraddress": "b"}, "server"),
    ):
        (problem,) = problems_of(auth(**fields))
        assert problem.field == f"environment.registry_auth.{field}"


@pytest.mark.parametrize("path", [".", "./", "a/..", "/run/determined/workdir"])
def test_a_mount_over_the_working_directory_is_refused(path: str) -> None:
    (problem,) = problems_of(LEAST + dump({"bind_mounts": [{"host_path": "/data", "container_path": path}]}))
    assert problem.field == "bind_mounts[0].container_path"
    stored = load(LEAST).effective()
    stored["bind_mounts"] = [{"host_path": "/data", "container_path": path, "propagation": "odd"}]
    assert ExperimentConfig.from_json(stored).bind_mounts[0].container_path == path  # an earlier release took it


def test_what_a_mount_cannot_have_is_said() -> None:
    mount = {"host_path": "/data", "container_path": "data", "read_only": True}
    (warning,) = load(LEAST + dump({"bind_mounts": [mount]})).without_container
    assert "bind_mounts.0.read_only has no effect" in warning
    (problem,) = problems_of(LEAST + dump({"bind_mounts": [{**mount, "propagation": "sideways"}]}))
    assert problem.field == "bind_mounts[0].propagation" and "rprivate" in problem.allowed


def test_a_port_that_is_to_need_no_login_needs_one_and_says_so() -> None:
    ports = [{"proxy_port": 8000}, {"proxy_port": 8001, "unauthenticated": True}]
    (warning,) = load(LEAST + dump({"environment": {"proxy_ports": ports}})).warnings
    assert "environment.proxy_ports.1.unauthenticated has no effect" in warning
    assert not load(LEAST + dump({"environment": {"proxy_ports": ports[:1]}})).warnings


def test_fusion_of_tensors_is_horovods() -> None:
    fields = {"tensor_fusion_cycle_time": 5, "auto_tune_tensor_fusion": True}
    searcher = {"name": "single", "metric": "loss", "max_length": {"batches": 9}}
    data = {"searcher": searcher, "optimizations": fields}
    (warning,) = load(dump({"entrypoint": "model_def:Net", **data})).warnings
    assert "optimizations.tensor_fusion_cycle_time, optimizations.auto_tune_tensor_fusion: no effect" in warning
    launched = "python3 -m determined.launch.horovod --trial model_def:Net"
    assert load(dump({"entrypoint": launched, **data})).warnings == []


PRINTED = [
    {"host_storage_path": "/h", "container_storage_path": "/c"},
    {"type": "shared_fs"},
    {
        "type": "s3",
        "bucket": "b",
        "bucket_directory_path": "some/where",
        "local_cache_host_path": "/h",
        "local_cache_container_path": "/c",
        "access_key": "a",
        "secret_key": "s",
        "endpoint_url": "http://127.0.0.1:8080/",
    },
    {"type": "gcs", "bucket": "b", "bucket_directory_path": "p", "local_cache_host_path": "/h"},
]


@pytest.mark.parametrize("section", PRINTED, ids=lambda section: section.get("type", "default"))
def test_the_data_layer_has_its_fields_and_its_default_type(section: dict[str, Any]) -> None:
    found = load(LEAST + dump({"data_layer": section}))
    stored = found.config.to_json()["data_layer"]
    assert {**stored, "type": section.get("type", "shared_fs")} == stored
    assert {name: stored[name] for name in section} == section
    said = [warning for warning in found.warnings if "data_layer" in warning]
    assert len(said) == sum("container" in name for name in section)
    assert all("has no effect without a container" in warning for warning in said)


def test_an_empty_data_layer_is_the_default_one() -> None:
    assert load(LEAST + "data_layer: {}\n").warnings == []


@pytest.mark.parametrize(
    ("section", "allowed"),
    [
        ({"type": "s3", "bucket": "b"}, "bucket_directory_path"),
        ({"type": "gcs", "bucket": "", "bucket_directory_path": "p"}, "text that is not empty"),
        ({"type": "s3", "bucket": "b", "bucket_directory_path": "../p"}, "without '..'"),
        ({"host_storage_path": "cache"}, "an absolute path"),
        ({"local_cache_size_gib": 0}, ">= 1"),
        ({"type": "azure"}, "shared_fs"),
    ],
    ids=str,
)
def test_mistakes_in_the_data_layer_are_named(section: dict[str, Any], allowed: str) -> None:
    (problem,) = problems_of(LEAST + dump({"data_layer": section}))
    assert allowed in str(problem)


def test_the_keys_of_the_data_layer_are_secrets() -> None:
    shown = masked_text(LEAST + dump({"data_layer": PRINTED[2]}))
    assert "secret_key: s\n" not in shown and "access_key: a\n" not in shown and "some/where" in shown


def test_what_stands_for_log_policies_by_itself_would_pass_for_a_users_own() -> None:
    for each in USUAL_LOG_POLICIES:
        assert LogPolicy.model_validate({"name": each.name, "pattern": each.pattern}) == each


@pytest.mark.parametrize(
    ("lr", "warned"),
    [
        (
            "{type: log, base: 10, minval: 0.0001, maxval: 0.1}",
            "draws 1 to 1.259; for 0.0001 to 0.1 write minval: -4, maxval: -1",
        ),
        ("{type: log, base: 10, minval: -4, maxval: -1}", ""),
        ("{type: log, base: 2, minval: 0.5, maxval: 6}", ""),
        ("{type: double, minval: 0.0001, maxval: 0.1}", ""),
    ],
)
def test_a_range_of_log_whose_ends_look_like_values_is_questioned(lr: str, warned: str) -> None:
    text = "entrypoint: python3 t.py\nsearcher: {name: random, metric: loss, max_trials: 2}\nhyperparameters: {o: {lr: LR}}\n"
    text = text.replace("LR", lr)
    told = [words for words in load(text).warnings if words.startswith("hyperparameters.o.lr: minval")]
    assert bool(told) == bool(warned) and all(warned in words for words in told)


def test_an_unknown_field_and_a_missing_one_are_said_briefly() -> None:
    with pytest.raises(ConfigError) as caught:
        load("searcher: {name: single, metirc: loss}\nmax_restarst: 3\nresources: {zzzz: 1}\n", file="c.yaml")
    told = sorted(str(problem) for problem in caught.value.problems)
    assert "c.yaml:1: searcher.metirc: unknown field (did you mean 'metric'?)" in told
    assert "c.yaml:2: max_restarst: unknown field (did you mean 'max_restarts'?)" in told
    assert any(line.startswith("c.yaml:3: resources.zzzz: unknown field; there are slots_per_trial,") for line in told)
    assert any(line.endswith(": entrypoint: required field is missing") for line in told)
