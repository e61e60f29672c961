"""Initialization of the distributed workers by DeepSpeed."""

from __future__ import annotations

import atexit
import os
import sys
from typing import Optional

import deepspeed
import torch
import torch.distributed
from deepspeed.accelerator import get_accelerator

from dethpc.core import DistributedContext
from dethpc.pytorch import _backend

MANUAL = "DET_MANUAL_INIT_DISTRIBUTED"
"""Set by those whose training code calls ``deepspeed.init_distributed()`` itself."""


def initialize() -> Optional[DistributedContext]:
    """The context of the workers that a launcher started; None for a worker alone. Raises ValueError when the trial has
    several slots and no launcher was used.

    Process groups stay until the process ends: DeepSpeed keeps groups made from them.
    """
    _compile_nothing()
    by_torchrun = _backend.uses_torch()
    alone = not by_torchrun and not {"WORLD_SIZE", "CROSS_RANK"} <= os.environ.keys()
    if alone:
        _backend.refuse_several_slots("deepspeed")
    if not os.environ.get(MANUAL):
        if alone and not torch.distributed.is_initialized():
            _meet_nobody()
        deepspeed.init_distributed(auto_mpi_discovery=False)
        atexit.register(_leave)
    if alone:
        return None
    return DistributedContext.from_torch_distributed() if by_torchrun else DistributedContext.from_deepspeed()


def device(local_rank: int) -> torch.device:
    """Where DeepSpeed trains in this process: a GPU if there is one, unless ``DS_ACCELERATOR`` says otherwise."""
    accelerator = get_accelerator()
    name = accelerator.device_name()
    if name == "cpu":
        return torch.device("cpu")
    accelerator.set_device(local_rank)
    return torch.device(name, local_rank)


def _meet_nobody() -> None:
    """DeepSpeed wants a process group, and some variables of its launcher, of a single process too."""
    for name, value in (("RANK", "0"), ("LOCAL_RANK", "0"), ("WORLD_SIZE", "1")):
        os.environ.setdefault(name, value)
    backend = get_accelerator().communication_backend_name()
    torch.distributed.init_process_group(backend, store=torch.distributed.HashStore(), rank=0, world_size=1)


def _leave() -> None:
    """Without it the threads of a process group can end an interpreter that goes down by SIGABRT: a trial that had trained to its
    end would fail. After an error the other workers may be waiting, and leaving could wait for them: then the launcher ends all."""
    if torch.distributed.is_initialized() and getattr(sys, "last_value", None) is None:
        torch.distributed.destroy_process_group()


def _compile_nothing() -> None:
    """On CPUs DeepSpeed compiles an extension at its first use, which serves inference alone. It would cost every environment
    half a minute and a compiler, and workers that were killed meanwhile leave a lock that others wait for without end."""
    if get_accelerator().device_name() == "cpu" and "DS_BUILD_SHM_COMM" not in os.environ:
        compatible = getattr(deepspeed.ops, "__compatible_ops__", None)
        if isinstance(compatible, dict):
            compatible["deepspeed_shm_comm"] = False
