"""Mistakes by the names that they have in the call."""

from __future__ import annotations

from typing import Any

import pytest

from dethpc.errors import Problem
from dethpc.sweeps.mistakes import as_called

SPACE = {"lr": (5, 1), "net": {"width": {"type": "int", "minval": "a", "maxval": 2}}}


@pytest.mark.parametrize(
    ("field", "config", "name"),
    [
        ("hyperparameters.lr.minval", {}, "space['lr']: minval"),
        ("hyperparameters.net.width.minval", {}, "space['net']['width']['minval']"),
        ("hyperparameters", {}, "space"),
        ("searcher.max_trials", {}, "max_trials"),
        ("searcher.max_trials", {"searcher": {"source_trial_id": 1}}, "max_trials"),
        ("searcher.max_trials", {"searcher": {"max_trials": -1}}, "config['searcher']['max_trials']"),
        ("searcher.name", {}, "searcher"),
        ("resources.slots_per_trial", {}, "slots"),
        ("max_restarts", {}, "max_restarts"),
        ("slurm.sbatch_args[0]", {"slurm": {"sbatch_args": ["-x"]}}, "config['slurm']['sbatch_args']: [0]"),
    ],
)
def test_a_mistake_has_the_name_that_it_has_in_the_call(field: str, config: dict[str, Any], name: str) -> None:
    problem = as_called(Problem(field, "must be less than 5", "try 3").at("config", 1), SPACE, config)
    assert str(problem) == f"dethpc.sweep: {name}: must be less than 5 (try 3)"
