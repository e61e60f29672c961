"""Slots of this machine: its GPUs or CPUs."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Slots:
    """``ids`` are what CUDA_VISIBLE_DEVICES takes, or mere numbers for CPU slots."""

    type: str  # cuda, cpu
    ids: tuple[str, ...]


def find(configured: int | None, env: Mapping[str, str] = os.environ) -> Slots:
    """This machine's GPUs, or those of them that CUDA_VISIBLE_DEVICES grants; without any, its CPU cores.

    ``configured`` limits GPUs to that many; without GPUs it is the number of CPU slots.
    """
    gpus = _gpus(env)
    if gpus:
        return Slots("cuda", gpus[:configured])
    return Slots("cpu", tuple(map(str, range(len(os.sched_getaffinity(0)) if configured is None else configured))))


def _gpus(env: Mapping[str, str]) -> tuple[str, ...]:
    present = [path for path in Path("/dev").glob("nvidia*") if re.fullmatch(r"nvidia\d+", path.name)]
    granted = env.get("CUDA_VISIBLE_DEVICES")
    if not present or granted is None:
        return tuple(map(str, range(len(present))))  # in a container /dev/nvidia5 alone is CUDA's device 0
    ids = [id.strip() for id in granted.split(",")]
    return tuple(id for id in ids if id and id != "-1" and id != "NoDevFiles")
