"""``from determined.horovod import hvd``: Horovod for PyTorch, imported when one of its names is asked for."""

from __future__ import annotations

import importlib
from typing import Any


class _Horovod:
    def require_horovod_type(self, horovod_type: str, reason: str) -> None:
        """Accepted: there is but one type. Raises ValueError for another."""
        if horovod_type != "torch":
            raise ValueError(f"Horovod serves PyTorch alone here, not {horovod_type} ({reason})")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(importlib.import_module("horovod.torch"), name)


hvd = _Horovod()
