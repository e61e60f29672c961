"""Routes of resource pools, nodes (Determined's agents) and slots, as the scheduler last reported them."""

from __future__ import annotations

import time as clock
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Query
from sqlalchemy import Connection

from dethpc.domain.facts import NodeHealth
from dethpc.domain.ids import AttemptId
from dethpc.domain.nodes import NodeState
from dethpc.domain.ports import NodeInfo, PoolInfo
from dethpc.domain.states import RunState
from dethpc.engine import events
from dethpc.errors import NotFound, Refused
from dethpc.master.http.access import (
    Owner,
    Reading,
    TheCluster,
    TheInstallation,
    TheOrder,
    ThePage,
    TheServices,
    Viewer,
    ViewerSomewhere,
)
from dethpc.master.http.models import Pagination, Wire, time_or_none
from dethpc.master.http.nouns.jobs import QueueStats, kind, pool_stats
from dethpc.master.http.nouns.masters import API_VERSION
from dethpc.master.http.nouns.tasks import container_id, name_of
from dethpc.master.http.router import new_router
from dethpc.master.http.service import Services
from dethpc.master.installation import Installation
from dethpc.master.watching.cluster_view import ClusterView
from dethpc.state import queries


def device_type(slot_type: str) -> str:
    return f"TYPE_{slot_type.upper()}" if slot_type in ("cpu", "cuda", "rocm") else "TYPE_UNSPECIFIED"


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


router = new_router(prefix="/api/v1", tags=["cluster"])


@router.get("/resource-pools")
def resource_pools(
    installation: TheInstallation,
    cluster: TheCluster,
    connection: Reading,
    who: ViewerSomewhere,
    paging: ThePage,
    unbound: bool = False,
) -> ResourcePools:
    """None is bound to a workspace: with ``unbound``, too, these are all."""
    stats = pool_stats(connection)
    pools = [
        ResourcePool.of(
            info,
            kind=kind(installation, info.name),
            scheduler=installation.scheduler,
            cluster=installation.cluster_name,
            stats=stats.get(info.name),
        )
        for info in cluster.pools()
    ]
    pools, pagination = paging.of(pools)
    return ResourcePools(resource_pools=pools, pagination=pagination)


def _agents(installation: Installation, cluster: ClusterView, connection: Connection) -> list[Agent]:
    uses: dict[str, dict[str, NodeUse]] = {}
    live = queries.live_runs(connection)
    names = queries.names_of_experiments(connection, (run.experiment_id for run, _ in live if run.experiment_id))
    for run, task in live:
        if run.state is RunState.RUNNING and run.nodes:
            attempt = AttemptId(run.id, max(run.attempt, 0))
            share = run.slots // len(run.nodes)
            use = NodeUse(
                task_id=task.id,
                name=name_of(task, names.get(task.experiment_id or 0, "")),
                trial_id=task.trial_id,
                experiment_id=task.experiment_id,
                allocation_id=str(attempt),
                slots=share,
            )
            for node in run.nodes:
                uses.setdefault(node, {})[container_id(attempt, node)] = use
    running = cluster.running_jobs()
    mine = {id for jobs in running.values() for id, job in jobs.items() if job.mine}
    ours = queries.jobs_of_runs(connection, mine)  # some have ended since Slurm was asked
    held = {node.name: node for node in queries.nodes(connection)}
    nodes = []
    for info in sorted(cluster.nodes(), key=lambda node: node.name):
        others = running.get(info.name, {}).keys() - ours
        nodes.append(
            Agent.of(info, uses.get(info.name, {}), API_VERSION, held.get(info.name), len(others), clock.time())
        )
    return nodes


@dataclass(frozen=True, slots=True)
class AgentQuery:
    """The order of the nodes, and what is left out of each."""

    sorting: TheOrder
    without_slots: Annotated[bool, Query(alias="excludeSlots")] = False
    without_containers: Annotated[bool, Query(alias="excludeContainers")] = False


@router.get("/agents")
def agents(
    installation: TheInstallation,
    cluster: TheCluster,
    connection: Reading,
    who: Viewer,
    query: Annotated[AgentQuery, Depends()],
    paging: ThePage,
) -> Agents:
    """By name: when each was registered, Slurm does not say."""
    every = _agents(installation, cluster, connection)
    if query.sorting.descending:
        every.reverse()
    nodes, pagination = paging.of(every)
    for one in nodes:
        if query.without_slots:
            one.slots = {}
        if query.without_containers:
            one.containers = {}
    return Agents(agents=nodes, pagination=pagination)


def _agent(installation: Installation, cluster: ClusterView, connection: Connection, name: str) -> Agent:
    for agent in _agents(installation, cluster, connection):
        if agent.id == name:
            return agent
    raise NotFound(f"node {name} not found")


@router.get("/agents/{name}")
def agent(
    name: str, installation: TheInstallation, cluster: TheCluster, connection: Reading, who: Viewer
) -> AgentAnswer:
    return AgentAnswer(agent=_agent(installation, cluster, connection, name))


@router.post("/agents/{name}/disable")
def disable(
    name: str, services: TheServices, connection: Reading, who: Owner, request: AgentDisable | None = None
) -> AgentAnswer:
    """Send no trial there any more, as long as another node is left; those that run there go on elsewhere, with ``drain`` there."""
    agents = _agents(services.installation, services.cluster, connection)
    node = next((agent for agent in agents if agent.id == name), None)
    if node is None:
        raise NotFound(f"node {name} not found")
    request = request or AgentDisable()
    pools = set(node.resource_pools)
    alone = not any(agent.enabled and agent.id != name and pools & set(agent.resource_pools) for agent in agents)
    reason = request.reason or f"disabled by {who.owner}"
    services.control.do(events.DisableNode(name, reason, clock.time(), drain=request.drain or alone))
    answer = _now(services, name)
    if alone:
        where = ", ".join(sorted(pools)) or "its pool"
        answer.notes.append(
            f"no other node of {where} can be used, so this has no effect until one can: trials run on {name} all the same; "
            "det experiment pause stops them"
        )
    return answer


@router.post("/agents/{name}/enable")
def enable(name: str, services: TheServices, connection: Reading, who: Owner) -> AgentAnswer:
    """Trials may go there again; what was held against the node is forgotten."""
    _agent(services.installation, services.cluster, connection, name)
    services.control.do(events.EnableNode(name, clock.time()))
    return _now(services, name)


def _now(services: Services, name: str) -> AgentAnswer:
    with services.store.read() as connection:
        return AgentAnswer(agent=_agent(services.installation, services.cluster, connection, name))


@router.post("/agents/{name}/slots/{slot}/enable", name="enable_slot")
@router.post("/agents/{name}/slots/{slot}/disable", name="disable_slot")
def change_slot(name: str, slot: str, who: Owner) -> SlotAnswer:
    raise Refused(
        f"single slots cannot be enabled or disabled: the scheduler assigns them. A whole node can: det agent disable {name}"
    )


@router.get("/agents/{name}/slots")
def slots(name: str, installation: TheInstallation, cluster: TheCluster, connection: Reading, who: Viewer) -> Slots:
    return Slots(slots=list(_agent(installation, cluster, connection, name).slots.values()))


@router.get("/agents/{name}/slots/{slot}")
def slot(
    name: str, slot: str, installation: TheInstallation, cluster: TheCluster, connection: Reading, who: Viewer
) -> SlotAnswer:
    node_slot = _agent(installation, cluster, connection, name).slots.get(slot.zfill(3))
    if node_slot is None:
        raise NotFound(f"node {name} has no slot {slot}")
    return SlotAnswer(slot=node_slot)
