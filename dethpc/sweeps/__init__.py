"""``dethpc.sweep(fn, space)``: a search over a Python function, from a script or a notebook.

``space`` turns Python's own values into hyperparameters, ``submit`` makes an experiment of the function, ``call`` runs it on a node
(its text goes along with the experiment), ``follow`` has the futures, the progress and the table.
"""

from __future__ import annotations

from dethpc.sweeps.follow import Sweep, TrialFailed, TrialFuture
from dethpc.sweeps.submit import attach, sweep

__all__ = ["Sweep", "TrialFailed", "TrialFuture", "attach", "sweep"]
