"""Writers of TensorBoard metrics that published trial code imports from ``determined.tensorboard``.

Code that writes below ``get_base_path()`` finds the files in checkpoint storage, as those of ``core.train.get_tensorboard_path()``.
"""

from __future__ import annotations

from dethpc.tensorboard import util
from dethpc.tensorboard.base import get_metric_writer
from dethpc.tensorboard.build import get_base_path, get_experiment_sync_path, get_sync_path
from dethpc.tensorboard.metric_writers import BatchMetricWriter, MetricWriter

__all__ = [
    "BatchMetricWriter",
    "MetricWriter",
    "get_base_path",
    "get_experiment_sync_path",
    "get_metric_writer",
    "get_sync_path",
    "util",
]
