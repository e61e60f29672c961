"""The same real master as the master's own tests use."""

from __future__ import annotations

from tests.master.conftest import served

__all__ = ["served"]
