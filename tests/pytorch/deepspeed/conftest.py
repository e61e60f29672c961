"""DeepSpeed in this process and in others; all of it on CPUs."""

from __future__ import annotations

import os
from typing import Iterator

import pytest

pytest.importorskip("deepspeed", reason="DeepSpeed is not installed: pip install deepspeed")


@pytest.fixture(autouse=True)
def on_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DS_ACCELERATOR", "cpu")


@pytest.fixture(scope="module")
def in_this_process() -> Iterator[None]:
    """What DeepSpeed leaves behind for as long as the process lives ends with the module: a process group, variables of its
    launcher, and ZeRO 3's own ``torch.nn.functional.linear``."""
    import torch.distributed

    names, linear = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "CROSS_RANK", "LOCAL_SIZE"), torch.nn.functional.linear
    with pytest.MonkeyPatch.context() as patch:
        for name in names:
            patch.delenv(name, raising=False)
        yield
        for name in names:
            os.environ.pop(name, None)
    torch.nn.functional.linear = linear
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
