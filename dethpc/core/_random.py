"""The random generators of this process: Python's, and those of numpy and PyTorch where they are loaded."""

from __future__ import annotations

import random
import sys
from typing import Any, Dict


def generators() -> Dict[str, Any]:
    """Their states, in Determined's names; of GPUs, the current one's."""
    found: Dict[str, Any] = {"random_rng_state": random.getstate()}
    if "numpy" in sys.modules:
        kind, keys, *rest = sys.modules["numpy"].random.get_state()
        # A list, which torch.load(weights_only=True) reads; it takes no array.
        found["np_rng_state"] = (kind, keys.tolist(), *rest)
    torch = sys.modules.get("torch")
    if torch is not None:
        found["cpu_rng_state"] = torch.get_rng_state()
        if torch.cuda.is_available():
            found["gpu_rng_state"] = torch.cuda.get_rng_state()
    return found


def restore_generators(found: Dict[str, Any]) -> None:
    """Set those that ``found`` has and this process, too."""
    random.setstate(found["random_rng_state"])
    if "np_rng_state" in found:
        import numpy

        numpy.random.set_state(found["np_rng_state"])
    torch = sys.modules.get("torch")
    if torch is not None and "cpu_rng_state" in found:
        torch.set_rng_state(found["cpu_rng_state"])
        if "gpu_rng_state" in found and torch.cuda.is_available():
            torch.cuda.set_rng_state(found["gpu_rng_state"])
