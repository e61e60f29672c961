"""Resource pools: named slices of the cluster, and the slots of their nodes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dethpc.domain.nodes import NodeState
from dethpc.domain.ports import NodeInfo, PoolInfo


@dataclass(frozen=True)
class SlurmPool:
    """How a resource pool is asked of Slurm. The site configuration names pools; without one, each partition is a pool."""

    name: str
    partition: str
    qos: str | None = None
    account: str | None = None
    constraint: str | None = None
    reservation: str | None = None
    slot_type: str | None = None  # cuda, rocm, cpu; None: cuda where the nodes have GPUs, else cpu
    gpu_type: str | None = None  # the type in gres, e.g. "a100"; None: any
    cpus_per_slot: int = 1
    slots_per_node: int | None = (
        None  # of nodes whose GPUs Slurm does not know; such a node is given to one job as a whole
    )
    default: bool = False
    description: str = ""

    def has(self, row: NodeRow) -> bool:
        """Whether the node is one of the pool's."""
        if row.partition != self.partition or (self.constraint and not meets(self.constraint, row.features)):
            return False
        return self.gpu_type is None or self.gpu_type in row.gpus


@dataclass(frozen=True)
class NodeRow:
    """One node as a member of one partition."""

    node: str
    partition: str
    default_partition: bool
    state: NodeState
    gpus: Mapping[str, int] = field(default_factory=dict)  # by type; "" where the site names none
    gpus_used: Mapping[str, int] = field(default_factory=dict)
    cpus: int = 0
    cpus_used: int = 0
    memory_mb: int = 0
    address: str = ""
    max_time: float | None = None
    features: frozenset[str] = frozenset()
    max_nodes: int | None = None
    available: str = "up"
    reason: str = ""


_STATES = {  # sinfo's words, where they are not the state's own: long ones and short ones
    "mix": NodeState.MIXED,
    "alloc": NodeState.ALLOCATED,
    "comp": NodeState.COMPLETING,
    "plnd": NodeState.PLANNED,
    "resv": NodeState.RESERVED,
    "drng": NodeState.DRAINING,
    "drain": NodeState.DRAINED,
    "failg": NodeState.FAILING,
    "error": NodeState.FAIL,
    "no_respond": NodeState.DOWN,
    "not_responding": NodeState.DOWN,
    "boot": NodeState.REBOOTING,
    "reboot": NodeState.REBOOTING,
    "reboot_issued": NodeState.REBOOTING,
    "reboot_requested": NodeState.REBOOTING,
    "pow_dn": NodeState.POWERED_DOWN,
    "power_down": NodeState.POWERED_DOWN,
    "powering_down": NodeState.POWERED_DOWN,
    "pow_up": NodeState.POWERING_UP,
    "power_up": NodeState.POWERING_UP,
    "futr": NodeState.FUTURE,
    "unk": NodeState.UNKNOWN,
}


def meets(constraint: str, features: frozenset[str]) -> bool:
    """Whether a node of these features can be one of a job with this ``--constraint``, which counts and groups may refine."""
    if "(" in constraint:
        return True  # Slurm knows
    either = re.sub(r"[\[\]]|\*\d+", "", constraint).split("|")
    return any(all(name.strip() in features for name in re.split("[&,]", both)) for both in either)


def node_state(word: str) -> NodeState:
    """``mix*`` is ``MIXED``: flags behind the word (not responding, power saving) are left off."""
    plain = word.rstrip("*~#!%$@^-+").lower()
    if plain in _STATES:
        return _STATES[plain]
    return NodeState(plain) if plain in {state.value for state in NodeState} else NodeState.UNKNOWN


def discover(rows: Sequence[NodeRow]) -> list[SlurmPool]:
    """One pool per partition; Slurm's default partition is the default pool, and the first."""
    partitions = {row.partition: row.default_partition for row in rows}
    ordered = sorted(partitions.items(), key=lambda item: (not item[1], item[0]))
    return [SlurmPool(name=name, partition=name, default=default) for name, default in ordered]


def describe(pools: Sequence[SlurmPool], rows: Sequence[NodeRow]) -> list[PoolInfo]:
    """What each pool has and uses now. The slots of nodes that are gone do not count."""
    infos = []
    for pool in pools:
        members = [row for row in rows if pool.has(row)]
        kind = pool.slot_type or ("cuda" if any(row.gpus for row in members) else "cpu")
        counts = [_slots(row, kind, pool) for row in members if not row.state.gone]
        infos.append(
            PoolInfo(
                name=pool.name,
                partition=pool.partition,
                nodes=len(members),
                slots=sum(total for total, _ in counts),
                slots_used=sum(used for _, used in counts),
                slot_type=kind,
                max_time=next((row.max_time for row in members), None),
                max_nodes=next((row.max_nodes for row in members), None),
                available=next((row.available for row in members), "up"),
                default=pool.default,
                description=pool.description,
            )
        )
    return infos


def nodes(pools: Sequence[SlurmPool], rows: Sequence[NodeRow]) -> list[NodeInfo]:
    """Each node once, with the pools it belongs to."""
    by_name: dict[str, NodeInfo] = {}
    order = {pool.name: n for n, pool in enumerate(pools)}
    for row in rows:
        mine = [pool for pool in pools if pool.has(row)]
        info = by_name.get(row.node)
        if info is None:
            kind = "cuda" if row.gpus else "cpu"
            shape = next((pool for pool in mine if pool.slot_type), None)
            if shape is not None and shape.slot_type is not None:
                kind = shape.slot_type
            total, used = _slots(row, kind, shape or SlurmPool("", row.partition))
            info = by_name[row.node] = NodeInfo(
                name=row.node,
                state=row.state,
                slots=total,
                slots_used=used,
                slot_type=kind,
                cpus=row.cpus,
                memory_mb=row.memory_mb,
                reason=row.reason,
                address=row.address,
            )
        info.pools = tuple(sorted((*info.pools, *(pool.name for pool in mine)), key=order.__getitem__))
    return list(by_name.values())


def _slots(row: NodeRow, kind: str, pool: SlurmPool) -> tuple[int, int]:
    """(slots, slots in use) of a node."""
    if kind == "cpu":
        return row.cpus // pool.cpus_per_slot, -(-row.cpus_used // pool.cpus_per_slot)
    if pool.slots_per_node is not None:
        return pool.slots_per_node, pool.slots_per_node if row.cpus_used else 0
    if pool.gpu_type is not None:
        return row.gpus.get(pool.gpu_type, 0), row.gpus_used.get(pool.gpu_type, 0)
    return sum(row.gpus.values()), sum(row.gpus_used.values())
