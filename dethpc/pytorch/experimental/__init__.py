"""Going through a dataset with a model, without training."""

from __future__ import annotations

from dethpc.pytorch.experimental._batch_process import (
    TorchBatchProcessor,
    TorchBatchProcessorContext,
    get_default_device,
    torch_batch_process,
)

__all__ = ["TorchBatchProcessor", "TorchBatchProcessorContext", "get_default_device", "torch_batch_process"]
