"""Metric writer of the installed framework."""

from __future__ import annotations

from dethpc.tensorboard.metric_writers import BatchMetricWriter, MetricWriter


def get_metric_writer() -> BatchMetricWriter:
    """TensorFlow's writer, or without TensorFlow PyTorch's. Raises ImportError without either."""
    try:
        from dethpc.tensorboard.metric_writers.tensorflow import TFWriter

        writer: MetricWriter = TFWriter()
    except ModuleNotFoundError:
        from dethpc.tensorboard.metric_writers.pytorch import _TorchWriter

        writer = _TorchWriter()
    return BatchMetricWriter(writer)
