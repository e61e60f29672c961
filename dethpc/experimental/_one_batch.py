"""Trying a trial class out."""

from __future__ import annotations

from typing import Any, Dict, Optional, Type

from dethpc.errors import NotSupportedYet


def test_one_batch(trial_class: Type[Any], config: Optional[Dict[str, Any]] = None) -> None:
    """Train and validate one batch of a trial class in this process, with the ``hyperparameters`` of ``config`` as they stand
    there. Raises what the trial raises, and NotSupportedYet for a class that is neither PyTorchTrial nor DeepSpeedTrial."""
    test = getattr(trial_class, "_test_one_batch", None)
    if test is None:
        raise NotSupportedYet(f"one batch of a PyTorchTrial or a DeepSpeedTrial can be tried, not of {trial_class!r}")
    test({**(config or {}), "scheduling_unit": 1})
