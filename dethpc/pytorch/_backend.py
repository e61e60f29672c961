"""Exchange of gradients between workers: PyTorch's own, or Horovod's when its launcher started them."""

from __future__ import annotations

import importlib
import os
import random
from typing import Any, Optional

import torch
import torch.distributed

from dethpc.core import DistributedContext
from dethpc.core._info import get_cluster_info


def uses_torch() -> bool:
    return bool(os.environ.get("USE_TORCH_DISTRIBUTED"))


def uses_horovod() -> bool:
    return bool(os.environ.get("USE_HOROVOD"))


def hvd() -> Any:
    """``horovod.torch``. Raises ImportError that says how to get it."""
    try:
        return importlib.import_module("horovod.torch")
    except ImportError as error:
        raise ImportError(
            "this was started by a Horovod launcher, and Horovod is not installed: "
            "HOROVOD_WITH_PYTORCH=1 pip install --no-build-isolation horovod, or use determined.launch.torch_distributed"
        ) from error


def initialize() -> Optional[DistributedContext]:
    """The context of the workers that a launcher started; None for a worker alone. Raises ValueError when the task has
    several slots and no launcher was used."""
    if uses_horovod():
        horovod = hvd()
        horovod.init()
        return DistributedContext.from_horovod(horovod)
    if uses_torch():
        if not torch.distributed.is_initialized():
            backend = "gloo"
            if torch.cuda.is_available():
                backend = "nccl"
                torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
            torch.distributed.init_process_group(backend=backend)
        return DistributedContext.from_torch_distributed()
    refuse_several_slots("torch_distributed")
    return None


def refuse_several_slots(launcher: str) -> None:
    """Raises ValueError when the trial has several slots; no launcher has started this worker."""
    info = get_cluster_info()
    if info is None or info.task_type != "TRIAL":
        return
    if len(info.container_addrs) > 1 or len(info.slot_ids) > 1:
        raise ValueError(
            "this task has several slots: start the training through a launcher, such as "
            f"python3 -m determined.launch.{launcher} python3 train.py"
        )


def set_seeds(seed: int) -> None:
    """The same on every worker: Python's, numpy's and PyTorch's generators, on all devices."""
    random.seed(seed)
    torch.manual_seed(seed)
    try:
        import numpy
    except ImportError:
        return
    numpy.random.seed(seed % 2**32)
