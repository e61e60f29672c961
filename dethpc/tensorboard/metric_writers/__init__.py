"""What writes numbers into TensorBoard's files."""

from __future__ import annotations

from dethpc.tensorboard.metric_writers.callback import BatchMetricWriter, MetricWriter

__all__ = ["BatchMetricWriter", "MetricWriter"]
