"""The decisions. ``step(state, event)`` gives the rows to write; nothing here does anything.

``events`` what can happen; ``state`` what rows make of memory, ``fold`` all of it at once; ``decide`` from one to the other. The
decisions themselves: ``experiments``, ``search``, ``trials``, ``tasks``, ``runs`` (the life of a run), ``ends`` (the failure
taxonomy), ``nodes``, ``checkpoints``, ``unmanaged``; ``queue`` what may go next, in the order of ``dispatch_order``, over ``jobs``,
``live_runs`` and ``queue_index``; ``nice`` its order inside the scheduler's own queue, ``reorder`` what users change about it.
"""

from __future__ import annotations

from dethpc.engine.decide import decide, step
from dethpc.engine.state import ClusterState

__all__ = ["ClusterState", "decide", "step"]
