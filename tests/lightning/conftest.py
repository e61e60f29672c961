"""Lightning on one core, a cluster in this process, and a user with ``det``."""

from __future__ import annotations

import logging
from importlib.util import find_spec

import pytest

from tests.core.conftest import Cluster, cluster, off_cluster
from tests.e2e.conftest import user
from tests.frameworks import own_environment

__all__ = ["Cluster", "cluster", "off_cluster", "own_environment", "user"]

# Without the framework there is nothing to collect; the development environment has it.
collect_ignore_glob = [] if all(map(find_spec, ("torch", "lightning"))) else ["test_*.py"]


@pytest.fixture(autouse=True)
def quiet() -> None:
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
