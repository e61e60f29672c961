"""How a trial spreads over nodes, and what it asks of each: arithmetic on the configuration and its pool."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from dethpc.config.resources import Slurm
from dethpc.config.site import PoolConfig, SiteConfig
from dethpc.domain import walltime


@dataclass(frozen=True, slots=True)
class Shape:
    """How many nodes, and how many slots on each."""

    nodes: int
    slots_per_node: int
    slot_type: str


def spread(slots: int, per_node: int, slot_type: str, *, single_node: bool = False) -> Shape:
    """Spread ``slots`` evenly over as few nodes as hold them. Raises ValueError when that cannot be done.

    ``per_node``: slots of one node; 0 when unknown, then all slots are asked of one node.
    """
    if slots <= max(1, per_node) or per_node == 0:
        return Shape(1, slots, slot_type)
    if single_node:
        raise ValueError(f"{slots} slots on a single node; the largest node has {per_node}")
    if slots % per_node:
        raise ValueError(
            f"{slots} slots on nodes of {per_node} slots each; use a multiple of {per_node}, or set slurm.slots_per_node"
        )
    return Shape(slots // per_node, per_node, slot_type)


def pool_of(site: SiteConfig, name: str) -> PoolConfig:
    """What the site says of the pool; one that it does not name is the partition of that name."""
    pool = site.pools.get(name) or PoolConfig()
    return pool if pool.partition else pool.model_copy(update={"partition": name})


def cores_of_task(pool: PoolConfig, slots: int, slurm: Slurm) -> int:
    """Cores to ask for each task: an equal share of those of the node's slots, or what the configuration asks for if more."""
    per_node = slurm.ntasks_per_node or 1
    return max(math.ceil(slots * (pool.cpus_per_slot or 1) / per_node), slurm.cpus_per_task or 0)


def cores(pool: PoolConfig, slots: int, slurm: Slurm) -> int:
    """Cores to ask of each node."""
    return cores_of_task(pool, slots, slurm) * (slurm.ntasks_per_node or 1)


def time_asked(options: Sequence[str]) -> float | None:
    """Seconds of the last ``--time`` or ``-t`` among sbatch's options; None: none of them, or none that can be read."""
    found = re.findall(r"(?:^|\s)(?:--time(?:=|\s+)|-t\s*)(\S+)", " ".join(options))
    return walltime.seconds(found[-1]) if found else None
