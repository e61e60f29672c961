"""Keras on PyTorch, a cluster in this process, and a user with ``det``."""

from __future__ import annotations

import os
from importlib.util import find_spec

os.environ.setdefault("KERAS_BACKEND", "torch")

from tests.core.conftest import Cluster, cluster, off_cluster  # noqa: E402
from tests.e2e.conftest import user  # noqa: E402
from tests.frameworks import own_environment  # noqa: E402

__all__ = ["Cluster", "cluster", "off_cluster", "own_environment", "user"]

# Without the framework there is nothing to collect; the development environment has it.
collect_ignore_glob = [] if all(map(find_spec, ("torch", "keras"))) else ["test_*.py"]
