"""States of this process's random generators: Python's, and those of numpy and PyTorch where they are loaded."""

from __future__ import annotations

import random
import sys
from typing import Any, Dict


def generators() -> Dict[str, Any]:
    """Their states, in Determined's names; of GPUs, the current one's."""
    states: Dict[str, Any] = {"random_rng_state": random.getstate()}
    if "numpy" in sys.modules:
        kind, keys, *rest = sys.modules["numpy"].random.get_state()
        # A list, which torch.load(weights_only=True) reads; it takes no array.
        states["np_rng_state"] = (kind, keys.tolist(), *rest)
    torch = sys.modules.get("torch")
    if torch is not None:
        states["cpu_rng_state"] = torch.get_rng_state()
        if torch.cuda.is_available():
            states["gpu_rng_state"] = torch.cuda.get_rng_state()
    return states


def restore_generators(states: Dict[str, Any]) -> None:
    """Set those that ``states`` has and this process, too."""
    random.setstate(states["random_rng_state"])
    if "np_rng_state" in states:
        import numpy

        numpy.random.set_state(states["np_rng_state"])
    torch = sys.modules.get("torch")
    if torch is not None and "cpu_rng_state" in states:
        torch.set_rng_state(states["cpu_rng_state"])
        if "gpu_rng_state" in states and torch.cuda.is_available():
            torch.cuda.set_rng_state(states["gpu_rng_state"])
