"""The name of LightningAdapter, which Determined deprecated and removed. It can be imported; using it says what to use instead."""

from __future__ import annotations

from typing import Any, NoReturn


def _gone() -> NoReturn:
    raise NotImplementedError(
        "determined.pytorch.lightning.LightningAdapter is gone, in Determined too: train by Lightning's own Trainer in a "
        "script, with determined.lightning.DeterminedCallback. docs/training.md shows how"
    )


class LightningAdapter:
    """Neither to be built nor to be derived from."""

    def __init__(self, *_: Any, **__: Any) -> None:
        _gone()

    def __init_subclass__(cls, **__: Any) -> None:
        _gone()
