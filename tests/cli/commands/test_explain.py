"""``det config explain``: the rows of docs/config.md."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dethpc.config.experiment import ExperimentConfig


def test_a_field_is_explained_and_one_with_known_values_lists_them(det: Any) -> None:
    done = det("config", "explain", "searcher.mode")
    assert (done.returncode, done.stderr) == (0, "")
    assert "Default: standard" in done.stdout and "aggressive stops many trials early" in done.stdout
    assert "adaptive_asha" in det("config", "explain", "searcher.name").stdout


def test_a_section_lists_its_fields_and_no_field_lists_the_sections(det: Any) -> None:
    lines = det("config", "explain", "resources").stdout.splitlines()
    assert any(line.startswith("resources.slots_per_trial  ") for line in lines)
    listed = {line.split()[0] for line in det("config", "explain").stdout.splitlines()}
    assert listed == set(ExperimentConfig.model_fields)


@pytest.mark.parametrize(
    ("field", "names"),
    [
        ("max_trials", ["searcher.max_trials"]),
        ("secret_key", ["checkpoint_storage.secret_key", "data_layer.secret_key"]),
        ("hyperparameters.lr", ["hyperparameters"]),
        ("log_policies.0.pattern", ["log_policies.pattern"]),
    ],
)
def test_a_field_is_found_by_its_last_name_and_in_free_mappings_and_lists(
    det: Any, field: str, names: list[str]
) -> None:
    assert [one["field"] for one in json.loads(det("config", "explain", field, "--json").stdout)] == names


def test_a_search_method_is_explained_by_the_fields_of_its_section(det: Any) -> None:
    fields = {one["field"] for one in json.loads(det("config", "explain", "grid", "--json").stdout)}
    assert {"searcher.name", "searcher.metric", "searcher.max_concurrent_trials"} <= fields
    assert "searcher.max_trials" not in fields and "name" not in fields


def test_a_misspelt_field_is_named_with_the_nearest(det: Any) -> None:
    assert "did you mean" not in det("config", "explain", "config.yaml").stderr
    done = det("config", "explain", "sercher.mode")
    assert done.returncode == 1 and "did you mean 'searcher.mode'?" in done.stderr
