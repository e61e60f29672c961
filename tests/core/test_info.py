"""What training code reads of its trial."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any, Dict, Optional

import numpy
import pytest
import torch

import determined as det
from dethpc.core._random import generators, restore_generators
from tests.core.conftest import Cluster


@pytest.mark.parametrize(
    ("searcher", "length"),
    [
        ({"time_metric": "batches", "max_time": 4}, {"batches": 4}),
        ({"time_metric": "loss_seen", "max_time": 4}, None),  # of no unit that a max_length has
        ({"max_length": {"epochs": 2}, "time_metric": "batches", "max_time": 4}, {"epochs": 2}),
        ({}, None),
    ],
)
def test_a_trial_reads_the_older_name_of_its_length_beside_the_newer_one(
    cluster: Cluster, searcher: Dict[str, Any], length: Optional[Dict[str, int]]
) -> None:
    cluster.info["trial"]["config"]["searcher"] = {"name": "adaptive_asha", "metric": "loss", **searcher}
    cluster.enter()
    info = det.get_cluster_info()
    assert info is not None
    found = info.trial._config["searcher"]
    assert found.get("max_length") == length and searcher.items() <= found.items()
    assert (info.trial._settings.searcher.max_length is None) is ("max_length" not in searcher)


def test_generators_are_kept_in_what_torch_loads_without_pickles(tmp_path: Path) -> None:
    before = generators()
    torch.save(before, tmp_path / "state.pth")
    drawn = random.random(), numpy.random.rand(), float(torch.rand(1))
    restore_generators(torch.load(tmp_path / "state.pth", weights_only=True))
    assert (random.random(), numpy.random.rand(), float(torch.rand(1))) == drawn
