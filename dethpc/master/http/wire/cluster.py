"""Resource pools, nodes (Determined's agents) and slots on the wire."""

from __future__ import annotations

from collections.abc import Mapping

from dethpc.domain.facts import NodeHealth
from dethpc.domain.nodes import NodeState
from dethpc.domain.ports import NodeInfo, PoolInfo
from dethpc.master.http.models import Pagination, Wire, time_or_none


def device_type(slot_type: str) -> str:
    return f"TYPE_{slot_type.upper()}" if slot_type in ("cpu", "cuda", "rocm") else "TYPE_UNSPECIFIED"


class QueueStats(Wire):
    queued_count: int
    scheduled_count: int


class PriorityDetail(Wire):
    preemption: bool = False
    default_priority: int = 42


class PoolDetail(Wire):
    priority_scheduler: PriorityDetail | None = None


class ResourcePool(Wire):
    """Determined's shape; fields that only clouds and agents have are empty."""

    name: str
    description: str
    type: str = "RESOURCE_POOL_TYPE_STATIC"
    num_agents: int
    slots_available: int
    slots_used: int
    slot_type: str
    slots_per_agent: int | None
    default_compute_pool: bool
    default_aux_pool: bool
    scheduler_type: str
    scheduler_fitting_policy: str = "FITTING_POLICY_SLURM"
    preemptible: bool = False
    min_agents: int = 0
    max_agents: int = 0
    aux_container_capacity_per_agent: int = 0
    aux_container_capacity: int = 0
    aux_containers_running: int = 0
    image_id: str = ""
    instance_type: str = ""
    master_url: str = ""
    master_cert_name: str = ""
    startup_script: str = ""
    container_startup_script: str = ""
    agent_docker_network: str = ""
    agent_docker_runtime: str = ""
    agent_docker_image: str = ""
    agent_fluent_image: str = ""
    max_idle_agent_period: float = 0
    max_agent_starting_period: float = 0
    location: str
    details: PoolDetail
    accelerator: str = ""
    cluster_name: str
    resource_manager_metadata: dict[str, str]
    stats: QueueStats | None = None
    queue_order: str  # ours: priority, fair_share or fifo; on Slurm the type of the scheduler does not say it

    @classmethod
    def of(cls, info: PoolInfo, *, kind: str, scheduler: str, cluster: str, stats: QueueStats | None) -> ResourcePool:
        """``kind``: priority, fair_share or fifo. ``scheduler``: slurm or local."""
        priority = kind == "priority"
        order = {"priority": "PRIORITY", "fair_share": "FAIR_SHARE"}.get(kind, "ROUND_ROBIN")
        metadata = {"partition": info.partition}
        if info.max_time is not None:
            metadata["max_time_seconds"] = str(int(info.max_time))
        return cls(
            name=info.name,
            description=info.description,
            num_agents=info.nodes,
            slots_available=info.slots,
            slots_used=info.slots_used,
            slot_type=device_type(info.slot_type),
            slots_per_agent=info.slots // info.nodes if info.nodes else None,
            default_compute_pool=info.default,
            default_aux_pool=info.default,
            scheduler_type=f"SCHEDULER_TYPE_{'SLURM' if scheduler == 'slurm' else order}",
            queue_order=kind,
            location=info.partition,
            details=PoolDetail(priority_scheduler=PriorityDetail() if priority else None),
            cluster_name=cluster,
            resource_manager_metadata=metadata,
            stats=stats,
        )


class ResourcePools(Wire):
    resource_pools: list[ResourcePool]
    pagination: Pagination


class Device(Wire):
    id: int
    brand: str
    uuid: str = ""
    type: str


class Container(Wire):
    """What occupies a slot: ``id`` is one node's share of an attempt, or stands for a job that is not ours."""

    id: str
    parent: str = ""
    state: str = "STATE_RUNNING"
    permission_denied: bool = False


class Slot(Wire):
    id: str
    device: Device
    enabled: bool
    draining: bool
    container: Container | None


class DeviceStats(Wire):
    states: dict[str, int]
    total: int
    disabled: int
    draining: int


class SlotStats(Wire):
    type_stats: dict[str, DeviceStats]
    brand_stats: dict[str, DeviceStats]


class NodeUse(Wire):
    """Who uses slots of a node: one of our tasks. ``trial_id`` and ``experiment_id`` are None where it has none."""

    task_id: str
    name: str
    trial_id: int | None
    experiment_id: int | None
    allocation_id: str
    slots: int


class Agent(Wire):
    """A compute node. What is ours stands last."""

    id: str
    registered_time: str | None = None
    slots: dict[str, Slot]
    containers: dict[str, Container]
    addresses: list[str]
    enabled: bool
    draining: bool
    version: str
    resource_pools: list[str]
    slot_stats: SlotStats
    state: str  # the scheduler's word
    reason: str  # why it is not used: the scheduler's reason, or ours
    uses: list[NodeUse]
    other_jobs: int  # jobs on it that are not this master's
    excluded: bool  # by this master: no trial is sent there
    excluded_until: str | None  # None while excluded: until somebody enables it
    failures: int  # that are held against it

    @classmethod
    def of(
        cls, node: NodeInfo, uses: Mapping[str, NodeUse], version: str, held: NodeHealth | None, others: int, now: float
    ) -> Agent:
        """``uses``: by container id. ``held``: what is held against the node. ``others``: jobs there that are not ours."""
        off = held is not None and held.excluded(now)
        draining = node.state in (NodeState.DRAINING, NodeState.DRAINED) or (off and bool(uses))
        enabled = not off and node.state.usable
        occupied = [container for container, use in uses.items() for _ in range(use.slots)][: node.slots]
        occupied += ["scheduler"] * (min(node.slots_used, node.slots) - len(occupied))
        slots = {}
        for number in range(node.slots):
            name = f"{number:03d}"
            holder = Container(id=occupied[number]) if number < len(occupied) else None
            device = Device(id=number, brand=node.slot_type, type=device_type(node.slot_type))
            slots[name] = Slot(id=name, device=device, enabled=enabled, draining=draining, container=holder)
        stats = DeviceStats(
            states={"STATE_RUNNING": len(occupied)},
            total=node.slots,
            disabled=0 if enabled else node.slots,
            draining=node.slots if draining else 0,
        )
        return cls(
            id=node.name,
            slots=slots,
            containers={container: Container(id=container) for container in dict.fromkeys(occupied)},
            addresses=[node.address] if node.address else [],
            enabled=enabled,
            draining=draining,
            version=version,
            resource_pools=list(node.pools),
            slot_stats=SlotStats(type_stats={device_type(node.slot_type): stats}, brand_stats={node.slot_type: stats}),
            state=node.state.value,
            reason="; ".join(filter(None, [held.reason if held is not None and off else "", node.reason])),
            uses=list(uses.values()),
            other_jobs=others,
            excluded=off,
            excluded_until=time_or_none(held.excluded_until) if held is not None and off else None,
            failures=len(held.failures) if held is not None else 0,
        )


class AgentDisable(Wire):
    """``drain``: trials that run there go on. Else they checkpoint, stop, and go on elsewhere."""

    drain: bool = False
    reason: str = ""


class Agents(Wire):
    agents: list[Agent]
    pagination: Pagination


class AgentAnswer(Wire):
    agent: Agent
    notes: list[str] = []  # ours: what the owner should know, in words


class Slots(Wire):
    slots: list[Slot]


class SlotAnswer(Wire):
    slot: Slot
