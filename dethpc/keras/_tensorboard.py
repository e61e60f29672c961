"""Keras's TensorBoard callback, writing where the cluster collects its files."""

from __future__ import annotations

import importlib.util
import logging
from typing import Any

import keras

from dethpc import core

logger = logging.getLogger("dethpc.keras")


class TensorBoard(keras.callbacks.TensorBoard):
    """``keras.callbacks.TensorBoard``; ``log_dir`` is the directory from which core copies to checkpoint storage.

    It is for what Keras adds: histograms, images, profiles. The metrics that :class:`DeterminedCallback` reports are written for
    TensorBoard without it. Keras writes with TensorFlow whatever the backend: ImportError where that is not installed.
    """

    def __init__(self, core_context: core.Context, *args: Any, **kwargs: Any) -> None:
        if importlib.util.find_spec("tensorflow") is None:
            raise ImportError(
                "keras.callbacks.TensorBoard writes with TensorFlow, which is not installed; the metrics that DeterminedCallback "
                "reports are written for TensorBoard without it"
            )
        given = kwargs.pop("log_dir", None) or (args[0] if args else None)
        if given is not None:
            logger.warning("log_dir=%s is ignored: the files go where TensorBoard's files are collected", given)
        super().__init__(str(core_context.train.get_tensorboard_path()), *args[1:], **kwargs)
