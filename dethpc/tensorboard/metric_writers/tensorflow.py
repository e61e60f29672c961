"""TensorFlow's writer of summaries, where the platform finds its files."""

from __future__ import annotations

from typing import Any

from dethpc.tensorboard.build import get_base_path
from dethpc.tensorboard.metric_writers.callback import MetricWriter


class TFWriter(MetricWriter):
    """Raises ModuleNotFoundError without TensorFlow."""

    def __init__(self) -> None:
        from tensorflow import summary

        self._summary = summary
        self._folder = str(get_base_path({}))
        self.writer: Any = self._summary.create_file_writer(self._folder)

    def add_scalar(self, name: str, value: Any, step: int) -> None:
        with self.writer.as_default():
            self._summary.scalar(name, value, step=step)

    def reset(self) -> None:
        self.writer.close()
        self.writer = self._summary.create_file_writer(self._folder)

    def flush(self) -> None:
        self.writer.flush()
