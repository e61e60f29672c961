"""dethpc: deep-learning training on Slurm.

Importing this package costs next to nothing and needs only the standard library, because compute nodes import it from the
harness bundle. Submodules and the names of the public API load on first use.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

# name -> the module that defines it, or the submodule itself
_LAZY = {
    "InvalidHP": "dethpc.errors",
    "ClusterInfo": "dethpc.core._info",
    "TrialInfo": "dethpc.core._info",
    "ResourcesInfo": "dethpc.core._info",
    "RendezvousInfo": "dethpc.core._info",
    "get_cluster_info": "dethpc.core._info",
}
_SUBMODULES = ("core", "launch", "errors", "exec", "storage", "client")


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    if name in _SUBMODULES:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
