"""What one run asks of its pool."""

from __future__ import annotations

from dataclasses import dataclass

from dethpc.domain.ports import NodeInfo
from dethpc.domain.text.measures import plural


@dataclass(frozen=True, slots=True)
class ResourceRequest:
    """What one run asks of its pool. Times in seconds; 0 or None: left to the site."""

    pool: str
    nodes: int
    slots_per_node: int
    slot_type: str = "cuda"
    time_limit: float | None = None
    cpus_per_node: int = 0
    memory_per_node_mb: int = 0

    def __str__(self) -> str:
        slots = plural(self.slots_per_node, noun(self.slot_type))
        if not self.slots_per_node:
            return "a CPU of one node"
        return f"{slots} on one node" if self.nodes == 1 else f"{self.nodes} nodes of {slots}"

    def fits(self, node: NodeInfo) -> bool:
        """Whether the node, were it empty, holds one node's share of the job."""
        return (
            node.slots >= self.slots_per_node
            and (not node.cpus or node.cpus >= self.cpus_per_node)
            and (not node.memory_mb or node.memory_mb >= self.memory_per_node_mb)
        )


def noun(slot_type: str) -> str:
    return "slot" if slot_type == "cpu" else "GPU"
