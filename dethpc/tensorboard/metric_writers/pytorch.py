"""PyTorch's ``SummaryWriter``, where the platform finds its files."""

from __future__ import annotations

import warnings
from typing import Any

from dethpc.tensorboard.build import get_base_path
from dethpc.tensorboard.metric_writers.callback import MetricWriter


class _TorchWriter(MetricWriter):
    def __init__(self) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise ImportError(f"files for TensorBoard need PyTorch and the package tensorboard ({error})") from error
        self.writer: Any = SummaryWriter(log_dir=str(get_base_path({})))

    def add_scalar(self, name: str, value: Any, step: int) -> None:
        self.writer.add_scalar(name, value, step)

    def reset(self) -> None:
        self.writer.close()

    def flush(self) -> None:
        self.writer.flush()


class TorchWriter(_TorchWriter):
    """``writer`` is a ``torch.utils.tensorboard.SummaryWriter`` whose files go to checkpoint storage.

    Deprecated: trials take ``context.get_tensorboard_writer()``, other code a SummaryWriter in
    ``core_context.train.get_tensorboard_path()``.
    """

    def __init__(self) -> None:
        warnings.warn(
            "TorchWriter() is deprecated: use context.get_tensorboard_writer() in a trial, else a SummaryWriter in "
            "core_context.train.get_tensorboard_path()",
            FutureWarning,
            stacklevel=2,
        )
        super().__init__()
