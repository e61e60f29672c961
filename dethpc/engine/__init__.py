"""The decisions. ``step(state, event)`` gives the rows to write; nothing here does anything.

``events`` what can happen; ``state`` the fold of rows in memory; ``decide`` from one to the other; ``experiments`` and
``attempts`` the decisions themselves; ``ends`` the failure taxonomy; ``queue`` what may go next, ``places`` its index, ``nice``
its order inside the scheduler's own queue, ``moves`` what users change about it.
"""

from __future__ import annotations

from dethpc.engine.decide import decide, step
from dethpc.engine.state import ClusterState

__all__ = ["ClusterState", "decide", "step"]
