"""Training with Lightning: add a :class:`DeterminedCallback` to the Trainer's callbacks."""

from __future__ import annotations

from dethpc.extras import needed

with needed("determined.lightning", "Lightning 2", "lightning"):
    import lightning.pytorch as _lightning  # noqa: F401

from dethpc.lightning._callback import DeterminedCallback
from dethpc.lightning._logger import DeterminedLogger

__all__ = ["DeterminedCallback", "DeterminedLogger"]
