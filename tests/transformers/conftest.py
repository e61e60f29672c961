"""transformers on one core and without the network, and a cluster in this process."""

from __future__ import annotations

import os
from importlib.util import find_spec

os.environ["HF_HUB_OFFLINE"] = "1"

from tests.core.conftest import Cluster, cluster, off_cluster  # noqa: E402
from tests.e2e.conftest import user  # noqa: E402
from tests.frameworks import own_environment  # noqa: E402

__all__ = ["Cluster", "cluster", "off_cluster", "own_environment", "user"]

# Without the framework there is nothing to collect; the development environment has it.
collect_ignore_glob = [] if all(map(find_spec, ("torch", "transformers", "accelerate"))) else ["test_*.py"]
