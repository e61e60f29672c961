"""A user with ``det``, and a cluster in this process."""

from __future__ import annotations

from tests.core.conftest import Cluster, cluster
from tests.e2e.conftest import User, user

__all__ = ["Cluster", "User", "cluster", "user"]
