"""A run's bell: the master is told that the directory of an attempt has something new, and reads it."""

from __future__ import annotations

from dethpc.client.session import Session
from dethpc.domain.ids import AttemptId
from dethpc.errors import DethpcError


def ring(session: Session, attempt: AttemptId) -> bool:
    """False: the master did not hear it. It finds out by itself a little later."""
    try:
        session.post(f"/api/v1/runs/{attempt.run}/attempts/{attempt.number}/events", {"lines": []}, idempotent=True)
    except (DethpcError, OSError, ValueError):
        return False
    finally:
        session.close()
    return True
