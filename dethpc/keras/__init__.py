"""Training with Keras 3: add a :class:`DeterminedCallback` to ``model.fit()``."""

from __future__ import annotations

from typing import Any

from dethpc.extras import needed

with needed("determined.keras", "Keras 3 and the backend that KERAS_BACKEND names", "keras"):
    import keras as _keras

if int(_keras.__version__.split(".")[0]) < 3:
    raise ImportError(
        f"determined.keras needs Keras 3, and this is {_keras.__version__}: pip install -U 'dethpc[keras]', "
        "or TensorFlow 2.16 and later, whose tf.keras is Keras 3"
    )

from dethpc.keras import callbacks
from dethpc.keras._cached import CachedBatches, CachedDataset, DataLayer
from dethpc.keras._callback import DeterminedCallback
from dethpc.keras._tensorboard import TensorBoard
from dethpc.published import stand_in

__all__ = [
    "CachedBatches",
    "CachedDataset",
    "DataLayer",
    "DeterminedCallback",
    "InputData",
    "TensorBoard",
    "callbacks",
]

InputData = Any  # what TFKerasTrial's loaders returned: for annotations


def __getattr__(name: str) -> Any:
    return stand_in(__name__, name)
