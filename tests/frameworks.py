"""What the tests of all frameworks share: an environment of their own, and what a training left in its journal."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, List

import pytest

from tests.core.conftest import Cluster

if TYPE_CHECKING:
    import torch


@pytest.fixture(autouse=True)
def own_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    importlib.import_module("torch").set_num_threads(1)
    monkeypatch.chdir(tmp_path)
    for name in ("DETHPC_INFO", "DETHPC_TEST_MODE"):
        monkeypatch.delenv(name, raising=False)


def saved(cluster: Cluster) -> List[Dict[str, Any]]:
    return [event.data for event in cluster.journal("checkpoint")]


def reports(cluster: Cluster, group: str) -> List[Dict[str, Any]]:
    return [event.data for event in cluster.journal("metrics") if event.data["group"] == group]


def steps(found: List[Dict[str, Any]]) -> List[int]:
    return [one["steps_completed"] for one in found]


def same(one: torch.nn.Module, other: torch.nn.Module) -> bool:
    """Whether two networks have the same weights, bit for bit."""
    import torch

    return all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters()))
