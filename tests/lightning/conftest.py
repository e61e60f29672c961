"""Lightning on one core, a cluster in this process, and a user with ``det``."""

from __future__ import annotations

import importlib
import logging
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.core.conftest import Cluster, cluster, off_cluster
from tests.e2e.conftest import user

__all__ = ["Cluster", "cluster", "off_cluster", "user"]

# Without the framework there is nothing to collect; the development environment has it.
collect_ignore_glob = [] if all(map(find_spec, ("torch", "lightning"))) else ["test_*.py"]


@pytest.fixture(autouse=True)
def own_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    importlib.import_module("torch").set_num_threads(1)
    monkeypatch.chdir(tmp_path)
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    for name in ("DETHPC_INFO", "DETHPC_TEST_MODE"):
        monkeypatch.delenv(name, raising=False)
