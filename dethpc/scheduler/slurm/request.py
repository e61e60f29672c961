"""Nodes, tasks, cores and GPUs that options of sbatch request, as far as the queue and the accounts need them.

Slurm gets the options themselves. Where it chooses (``--nodes=2-4``, ``--gpus=6``), the figures here are the least.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dethpc.domain.slurm.gres import GPU, Gres, requested, requested_gpus, requested_tres
from dethpc.errors import GresError
from dethpc.scheduler.slurm import options as known
from dethpc.scheduler.slurm.options import Option, Unreadable

_NODES = re.compile(r"(\d+)([km]?)(?:-(\d+)([km]?))?(?:[,:][\d,:-]*)?", re.ASCII | re.IGNORECASE)
_WHOLE = re.compile(r"\d+", re.ASCII)
_UNITS = {"": 1, "k": 1024, "m": 1024 * 1024}


@dataclass(frozen=True)
class Request:
    """Numbers that the options leave open are None. ``gpus`` are of the whole job, the others as their names say."""

    nodes: int | None = None  # the least
    nodes_open: bool = True  # Slurm chooses how many
    ntasks: int | None = None
    ntasks_per_node: int | None = None
    ntasks_per_gpu: int | None = None
    cpus_per_task: int | None = None
    sockets_per_node: int | None = None
    gpus: list[Gres] | None = None
    gpus_per_node: list[Gres] | None = None
    gpus_per_task: list[Gres] | None = None
    gpus_per_socket: list[Gres] | None = None
    whole_nodes: bool = False  # --exclusive
    names: frozenset[str] = frozenset()  # of the options given

    @property
    def sized(self) -> bool:
        """Whether anything is said of nodes, tasks, cores or GPUs."""
        return bool(self.names & (known.NODES | known.TASKS | known.CPUS)) or self.asks_gpus or self.whole_nodes

    @property
    def asks_gpus(self) -> bool:
        return any(
            gpus is not None for gpus in (self.gpus, self.gpus_per_node, self.gpus_per_task, self.gpus_per_socket)
        )

    @property
    def gpu_type(self) -> str | None:
        """The one type that is named; None: none, or several."""
        lists = (self.gpus, self.gpus_per_node, self.gpus_per_task, self.gpus_per_socket)
        kinds = {resource.type for some in lists for resource in some or ()}
        return kinds.pop() or None if len(kinds) == 1 else None

    @property
    def least_nodes(self) -> int:
        if self.nodes is not None:
            return self.nodes
        per_node = _sum(self.gpus_per_node)
        if self.gpus and per_node:
            return math.ceil(_sum(self.gpus) / per_node)
        if self.ntasks and self.ntasks_per_node:
            return math.ceil(self.ntasks / self.ntasks_per_node)
        return 1

    @property
    def least_tasks(self) -> int:
        if self.ntasks is not None:
            return self.ntasks
        if self.ntasks_per_node is not None:
            return self.ntasks_per_node * self.least_nodes
        if self.gpus and self.gpus_per_task:
            return max(1, _sum(self.gpus) // max(1, _sum(self.gpus_per_task)))
        return self.least_nodes

    @property
    def all_gpus(self) -> int:
        """Of the whole job."""
        if self.gpus is not None:
            return _sum(self.gpus)
        if self.gpus_per_node is not None:
            return _sum(self.gpus_per_node) * self.least_nodes
        if self.gpus_per_task is not None:
            return _sum(self.gpus_per_task) * self.least_tasks
        if self.gpus_per_socket is not None:
            return _sum(self.gpus_per_socket) * (self.sockets_per_node or 1) * self.least_nodes
        if self.ntasks_per_gpu and self.ntasks:
            return math.ceil(self.ntasks / self.ntasks_per_gpu)
        return 0

    @property
    def cores(self) -> int:
        """Of the whole job."""
        return self.least_tasks * (self.cpus_per_task or 1)


def of(options: Sequence[Option]) -> Request:
    """What they ask for; of an option that is given twice the last one counts. Raises Unreadable, which names the option."""
    given = {option.name: option for option in options}
    numbers = {name: _number(given[name]) for name in _NUMBERS if name in given}
    least, most = _nodes(given["nodes"]) if "nodes" in given else (None, None)
    gres = _resources(given.get("gres"), requested) or []
    tres = _resources(given.get("tres-per-task"), requested_tres) or []
    per_node = [resource for resource in gres if resource.name == GPU] or None
    per_task = [resource for resource in tres if resource.name == GPU] or None
    cpus = next((resource.count for resource in tres if resource.name == "cpu"), None)
    exclusive = given.get("exclusive")
    return Request(
        nodes=least,
        nodes_open=least is None or least != most,
        ntasks=numbers.get("ntasks"),
        ntasks_per_node=numbers.get("ntasks-per-node"),
        ntasks_per_gpu=numbers.get("ntasks-per-gpu"),
        cpus_per_task=numbers.get("cpus-per-task") or cpus,
        sockets_per_node=numbers.get("sockets-per-node"),
        gpus=_resources(given.get("gpus"), requested_gpus),
        gpus_per_node=_resources(given.get("gpus-per-node"), requested_gpus) or per_node,
        gpus_per_task=_resources(given.get("gpus-per-task"), requested_gpus) or per_task,
        gpus_per_socket=_resources(given.get("gpus-per-socket"), requested_gpus),
        whole_nodes=exclusive is not None and exclusive.value is None,
        names=frozenset(given),
    )


_NUMBERS = ("ntasks", "ntasks-per-node", "ntasks-per-gpu", "cpus-per-task", "sockets-per-node")


def _number(option: Option) -> int:
    if option.value is None or not _WHOLE.fullmatch(option.value):
        raise Unreadable(f"{option}: not a whole number")
    return int(option.value)


def _nodes(option: Option) -> tuple[int, int | None]:
    """(least, most); most is None where the option lists several numbers."""
    parts = _NODES.fullmatch(option.value or "")
    if parts is None:
        raise Unreadable(f"{option}: not a number of nodes, such as 2 or 2-4")
    least = int(parts[1]) * _UNITS[parts[2].lower()]
    if re.search("[,:]", option.value or ""):
        return least, None
    return least, least if parts[3] is None else int(parts[3]) * _UNITS[parts[4].lower()]


def _resources(option: Option | None, parse: Callable[[str], list[Gres]]) -> list[Gres] | None:
    if option is None:
        return None
    try:
        return parse(option.value or "")
    except GresError as error:
        raise Unreadable(f"{option}: {error}") from None


def _sum(resources: Sequence[Gres] | None) -> int:
    return sum(resource.count for resource in resources or ())
