"""Resource pools, nodes (Determined's agents) and slots, as the scheduler said last."""

from __future__ import annotations

import time as clock
from typing import Annotated

from fastapi import Query
from sqlalchemy import Connection

from dethpc.domain.ids import AttemptId
from dethpc.domain.states import RunState
from dethpc.engine import events
from dethpc.errors import NotFound, Refused
from dethpc.master.http.access import (
    Limit,
    Offset,
    OrderBy,
    Owner,
    Reading,
    SortBy,
    TheCluster,
    TheControl,
    TheInstallation,
    TheStore,
)
from dethpc.master.http.models import paged
from dethpc.master.http.nouns.jobs import kind, pool_stats
from dethpc.master.http.router import new_router
from dethpc.master.http.wire.cluster import (
    Agent,
    AgentAnswer,
    AgentDisable,
    Agents,
    NodeUse,
    ResourcePool,
    ResourcePools,
    SlotAnswer,
    Slots,
)
from dethpc.master.http.wire.master import API_VERSION
from dethpc.master.http.wire.task import container_id, name_of
from dethpc.master.installation import Installation
from dethpc.master.watching.cluster_view import ClusterView
from dethpc.state import queries
from dethpc.state.store import SqlStore

router = new_router(prefix="/api/v1", tags=["cluster"])


@router.get("/resource-pools")
def resource_pools(
    installation: TheInstallation,
    cluster: TheCluster,
    connection: Reading,
    who: Owner,
    unbound: bool = False,
    limit: Limit = 0,
    offset: Offset = 0,
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
    found, pagination = paged(pools, offset, limit)
    return ResourcePools(resource_pools=found, pagination=pagination)


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
    found = []
    for info in sorted(cluster.nodes(), key=lambda node: node.name):
        others = running.get(info.name, {}).keys() - ours
        found.append(
            Agent.of(info, uses.get(info.name, {}), API_VERSION, held.get(info.name), len(others), clock.time())
        )
    return found


@router.get("/agents")
def agents(
    installation: TheInstallation,
    cluster: TheCluster,
    connection: Reading,
    who: Owner,
    sort_by: SortBy = "",
    order_by: OrderBy = "",
    without_slots: Annotated[bool, Query(alias="excludeSlots")] = False,
    without_containers: Annotated[bool, Query(alias="excludeContainers")] = False,
    limit: Limit = 0,
    offset: Offset = 0,
) -> Agents:
    """By name: when each was registered, Slurm does not say."""
    every = _agents(installation, cluster, connection)
    if order_by == "ORDER_BY_DESC":
        every.reverse()
    found, pagination = paged(every, offset, limit)
    for one in found:
        if without_slots:
            one.slots = {}
        if without_containers:
            one.containers = {}
    return Agents(agents=found, pagination=pagination)


def _agent(installation: Installation, cluster: ClusterView, connection: Connection, name: str) -> Agent:
    for agent in _agents(installation, cluster, connection):
        if agent.id == name:
            return agent
    raise NotFound(f"node {name} not found")


@router.get("/agents/{name}")
def agent(
    name: str, installation: TheInstallation, cluster: TheCluster, connection: Reading, who: Owner
) -> AgentAnswer:
    return AgentAnswer(agent=_agent(installation, cluster, connection, name))


@router.post("/agents/{name}/disable")
def disable(
    name: str,
    installation: TheInstallation,
    store: TheStore,
    control: TheControl,
    cluster: TheCluster,
    connection: Reading,
    who: Owner,
    request: AgentDisable | None = None,
) -> AgentAnswer:
    """Send no trial there any more, as long as another node is left; those that run there go on elsewhere, with ``drain`` there."""
    agents = _agents(installation, cluster, connection)
    wanted = next((agent for agent in agents if agent.id == name), None)
    if wanted is None:
        raise NotFound(f"node {name} not found")
    request = request or AgentDisable()
    pools = set(wanted.resource_pools)
    alone = not any(agent.enabled and agent.id != name and pools & set(agent.resource_pools) for agent in agents)
    reason = request.reason or f"disabled by {who.owner}"
    control.do(events.DisableNode(name, reason, clock.time(), drain=request.drain or alone))
    answer = _now(installation, store, cluster, name)
    if alone:
        where = ", ".join(sorted(pools)) or "its pool"
        answer.notes.append(
            f"no other node of {where} can be used, so this has no effect until one can: trials run on {name} all the same; "
            "det experiment pause stops them"
        )
    return answer


@router.post("/agents/{name}/enable")
def enable(
    name: str,
    installation: TheInstallation,
    store: TheStore,
    control: TheControl,
    cluster: TheCluster,
    connection: Reading,
    who: Owner,
) -> AgentAnswer:
    """Trials may go there again; what was held against the node is forgotten."""
    _agent(installation, cluster, connection, name)
    control.do(events.EnableNode(name, clock.time()))
    return _now(installation, store, cluster, name)


def _now(installation: Installation, store: SqlStore, cluster: ClusterView, name: str) -> AgentAnswer:
    with store.read() as connection:
        return AgentAnswer(agent=_agent(installation, cluster, connection, name))


@router.post("/agents/{name}/slots/{slot}/enable", name="enable_slot")
@router.post("/agents/{name}/slots/{slot}/disable", name="disable_slot")
def change_slot(name: str, slot: str, who: Owner) -> SlotAnswer:
    raise Refused(
        f"single slots cannot be enabled or disabled, because Slurm assigns them; a whole node can: det agent disable {name}"
    )


@router.get("/agents/{name}/slots")
def slots(name: str, installation: TheInstallation, cluster: TheCluster, connection: Reading, who: Owner) -> Slots:
    return Slots(slots=list(_agent(installation, cluster, connection, name).slots.values()))


@router.get("/agents/{name}/slots/{slot}")
def slot(
    name: str, slot: str, installation: TheInstallation, cluster: TheCluster, connection: Reading, who: Owner
) -> SlotAnswer:
    found = _agent(installation, cluster, connection, name).slots.get(slot.zfill(3))
    if found is None:
        raise NotFound(f"node {name} has no slot {slot}")
    return SlotAnswer(slot=found)
