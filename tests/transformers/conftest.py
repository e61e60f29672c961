"""transformers on one core and without the network, and a cluster in this process."""

from __future__ import annotations

import importlib
import os
from importlib.util import find_spec
from pathlib import Path

import pytest

os.environ["HF_HUB_OFFLINE"] = "1"

from tests.core.conftest import Cluster, cluster, off_cluster  # noqa: E402
from tests.e2e.conftest import user  # noqa: E402

__all__ = ["Cluster", "cluster", "off_cluster", "user"]

# Without the framework there is nothing to collect; the development environment has it.
collect_ignore_glob = [] if all(map(find_spec, ("torch", "transformers", "accelerate"))) else ["test_*.py"]


@pytest.fixture(autouse=True)
def own_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    importlib.import_module("torch").set_num_threads(1)
    monkeypatch.chdir(tmp_path)
    for name in ("DETHPC_INFO", "DETHPC_TEST_MODE"):
        monkeypatch.delenv(name, raising=False)
