"""The callbacks of TFKerasTrial, by name: with DeterminedCallback, Keras's own do."""

from __future__ import annotations

from typing import Any

from dethpc.published import stand_in


def __getattr__(name: str) -> Any:
    return stand_in(__name__, name)
