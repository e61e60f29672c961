"""The same real master as the master's own tests use."""

from __future__ import annotations

from tests.master.conftest import served, site

__all__ = ["served", "site"]
