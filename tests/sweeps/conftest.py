"""A user whose scripts run with ``dethpc``."""

from __future__ import annotations

from tests.e2e.conftest import User, user

__all__ = ["User", "user"]
