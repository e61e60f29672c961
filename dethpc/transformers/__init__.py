"""Training with ``transformers.Trainer``: add a :class:`DetCallback` to its callbacks."""

from __future__ import annotations

from dethpc.extras import needed

with needed("determined.transformers", "transformers with PyTorch", "transformers"):
    import torch as _torch  # noqa: F401
    import transformers as _transformers  # noqa: F401

from dethpc.transformers._callback import DetCallback

__all__ = ["DetCallback"]
