"""dethpc: deep-learning training on Slurm.

Importing this package costs next to nothing and needs only the standard library, because compute nodes import it from the
harness bundle. Submodules and the names of the public API load on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dethpc.core._info import ClusterInfo as ClusterInfo
    from dethpc.core._info import RendezvousInfo as RendezvousInfo
    from dethpc.core._info import ResourcesInfo as ResourcesInfo
    from dethpc.core._info import TrialInfo as TrialInfo
    from dethpc.core._info import get_cluster_info as get_cluster_info
    from dethpc.errors import InvalidHP as InvalidHP
    from dethpc.sweeps import sweep as sweep
    from dethpc.trials import ExperimentConfig as ExperimentConfig
    from dethpc.trials import TrialContext as TrialContext
    from dethpc.util import import_from_path as import_from_path

__version__ = "0.1.0"

# The format for ``logging`` whose level the log viewers recognise.
LOG_FORMAT = "%(levelname)s: [%(process)s] %(name)s: %(message)s"

# name -> the module that defines it, or the submodule itself
_LAZY = {
    "InvalidHP": "dethpc.errors",
    "ClusterInfo": "dethpc.core._info",
    "TrialInfo": "dethpc.core._info",
    "ResourcesInfo": "dethpc.core._info",
    "RendezvousInfo": "dethpc.core._info",
    "get_cluster_info": "dethpc.core._info",
    "import_from_path": "dethpc.util",
    "sweep": "dethpc.sweeps",
    "TrialContext": "dethpc.trials",
    "ExperimentConfig": "dethpc.trials",
}
_SUBMODULES = (
    *("core", "launch", "errors", "exec", "storage", "client", "experimental"),
    *("pytorch", "keras", "transformers", "lightning"),
    *("util", "horovod", "searcher", "sweeps", "common", "tensorboard"),
)


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    if name in _SUBMODULES:
        return importlib.import_module(f"{__name__}.{name}")
    from dethpc.published import stand_in

    return stand_in(__name__, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY, *_SUBMODULES})
