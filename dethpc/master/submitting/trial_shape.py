"""How a trial spreads over nodes, and what it asks of each: arithmetic on the configuration and its pool."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from dethpc.config.experiment import ExperimentConfig
from dethpc.config.sections.resources import Slurm
from dethpc.config.site import PoolConfig, SiteConfig
from dethpc.domain.slurm import walltime
from dethpc.errors import ConfigError, Problem
from dethpc.scheduler.slurm import request
from dethpc.scheduler.slurm.options import CPUS, NODES, TASKS, Unreadable
from dethpc.scheduler.slurm.request import Request
from dethpc.scheduler.slurm.script import options_of


@dataclass(frozen=True, slots=True)
class Shape:
    """How many nodes, and how many slots on each. ``open``: at least so many; Slurm chooses."""

    nodes: int
    slots_per_node: int
    slot_type: str
    open: bool = False


def spread(slots: int, per_node: int, slot_type: str, *, single_node: bool = False, most: int = 0) -> Shape:
    """Spread ``slots`` evenly over as few nodes as hold them. Raises ValueError when that cannot be done.

    ``per_node``: slots of one node; 0 when unknown, then all slots are asked of one node. ``most``: of all nodes; 0 when unknown.
    """
    if slots <= max(1, per_node) or per_node == 0:
        return Shape(1, slots, slot_type)
    if single_node:
        raise ValueError(f"{slots} slots on a single node; the largest node has {per_node}")
    if slots % per_node:
        multiple = f"a multiple of {per_node}{f' up to {most}' if most else ''}" if most != per_node else str(per_node)
        raise ValueError(
            f"{slots} slots on nodes of {per_node} slots each; use {multiple}, or set slurm.slots_per_node"
        )
    return Shape(slots // per_node, per_node, slot_type)


def pool_of(site: SiteConfig, name: str) -> PoolConfig:
    """What the site says of the pool; one that it does not name is the partition of that name."""
    pool = site.pools.get(name) or PoolConfig()
    return pool if pool.partition else pool.model_copy(update={"partition": name})


def spread_as_asked(slots: int, largest: int, slot_type: str, request: Request, *, even: bool) -> Shape:
    """As ``spread``, where options of sbatch ask for nodes, tasks or GPUs. ``even``: every node is to have equally many slots."""
    nodes = request.least_nodes
    if request.nodes is None and largest:
        nodes = max(nodes, math.ceil(slots / largest))
    if even and slots % nodes:
        raise ValueError(f"{slots} slots on {nodes} nodes, which --nodes in slurm.sbatch_args asks for")
    return Shape(nodes, math.ceil(slots / nodes), slot_type, open=request.nodes_open)


def is_of_options(request: Request, slots: int, slot_type: str) -> bool:
    """Whether the slots of an sbatch script are those that its own options ask for, and not others of the configuration."""
    if slot_type == "cpu":
        return bool(request.names & (NODES | TASKS | CPUS))
    return request.sized and (request.whole_nodes or request.all_gpus == slots)


def asked_of(options: Sequence[str]) -> Request:
    """What ``sbatch_args`` ask for. Raises ConfigError."""
    try:
        return request.of(options_of(options))
    except Unreadable as error:
        raise ConfigError([Problem("slurm.sbatch_args", f"sbatch would not take it: {error}")]) from None


def cores_of_task(pool: PoolConfig, shape: Shape, slurm: Slurm) -> int:
    """Cores to ask for each task: those of the node's slots, or what the configuration says when that is more. Where slots are
    cores, ``slurm.slots_per_node`` is so many of each node, however few of them the trial counts as its slots."""
    slots = max(1, shape.slots_per_node)
    if shape.slot_type == "cpu":
        slots = max(slots, slurm.slots_per_node or 0)
    return max(math.ceil(slots * (pool.cpus_per_slot or 1) / (slurm.ntasks_per_node or 1)), slurm.cpus_per_task or 0)


def cores_per_node(pool: PoolConfig, config: ExperimentConfig, shape: Shape) -> int:
    """Cores to ask of each node, as far as that is known."""
    request = asked_of(config.slurm.sbatch_args or [])
    if not request.names & (TASKS | CPUS):
        return cores_of_task(pool, shape, config.slurm) * (config.slurm.ntasks_per_node or 1)
    if request.nodes_open:
        return request.cpus_per_task or 1
    return math.ceil(request.least_tasks / shape.nodes) * (request.cpus_per_task or 1)


def time_asked(options: Sequence[str]) -> float | None:
    """Seconds of the last ``--time`` or ``-t`` among sbatch's options; None: none of them, or none that can be read."""
    limits = re.findall(r"(?:^|\s)(?:--time(?:=|\s+)|-t\s*)(\S+)", " ".join(options))
    return walltime.seconds(limits[-1]) if limits else None
