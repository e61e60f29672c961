"""The shape of a private cluster: its nodes, partitions, accounts and times."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

PARTITIONS: Mapping[str, str] = {
    "main": "Default=YES PriorityTier=1 PreemptMode=REQUEUE GraceTime=5",
    "high": "PriorityTier=10 PreemptMode=OFF",
}


@dataclass(frozen=True)
class NodeGroup:
    """Equal nodes, named by a prefix and a number. ``gpus``: how many by type, "" where the type has no name."""

    prefix: str
    count: int
    gpus: Mapping[str, int] = field(default_factory=dict)
    cpus: int = 8
    memory_mb: int = 4000
    features: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"{self.prefix}{i}" for i in range(self.count))

    @property
    def gres(self) -> str:
        return ",".join(f"gpu:{kind}:{count}" if kind else f"gpu:{count}" for kind, count in self.gpus.items())


@dataclass(frozen=True)
class Shape:
    """What a cluster is asked to be. Times in seconds, memory in MB.

    ``gpu_type``: the type that Slurm knows the GPUs by, "" where it has no name. ``groups`` takes the place of the first five
    fields where nodes differ. ``partitions``: options by name; a partition has all nodes unless its options say ``Nodes=``.
    ``accounts``: QOS by account, all of them the user's (with ``accounting``).
    """

    nodes: int = 4
    gpus_per_node: int = 4
    gpu_type: str = ""
    cpus_per_node: int = 8
    memory_mb: int = 4000
    groups: tuple[NodeGroup, ...] = ()
    partitions: Mapping[str, str] = field(default_factory=lambda: dict(PARTITIONS))
    accounts: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: {"users": ()})
    kill_wait: int = 3
    requeue_delay: int = 5  # Slurm calls it the lifetime of a job credential
    min_job_age: int = 300  # how long an ended job stays in squeue
    slurmd_timeout: int = 30
    message_timeout: int = 10
    priority: str = "basic"  # who comes first: basic, by age; multifactor, by weights that are all 0
    accounting: bool = False
    extra: tuple[str, ...] = ()  # further lines of slurm.conf

    @property
    def node_groups(self) -> tuple[NodeGroup, ...]:
        gpus = {self.gpu_type: self.gpus_per_node} if self.gpus_per_node else {}
        return self.groups or (NodeGroup("n", self.nodes, gpus, self.cpus_per_node, self.memory_mb),)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Shape:
        groups = tuple(NodeGroup(**{**group, "features": tuple(group["features"])}) for group in value["groups"])
        accounts = {name: tuple(qos) for name, qos in value["accounts"].items()}
        return cls(**{**value, "extra": tuple(value["extra"]), "groups": groups, "accounts": accounts})
