"""The reconciler over a real ledger, for the tests of this folder."""

from __future__ import annotations

from tests.master.reconciler_world import world, worlds

__all__ = ["world", "worlds"]
