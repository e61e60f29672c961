"""Resource pools, nodes (Determined's agents) and slots, as the scheduler said last."""

from __future__ import annotations

from fastapi import APIRouter
from sqlalchemy import Connection

from dethpc.domain.ids import AttemptId
from dethpc.domain.states import RunState
from dethpc.errors import NotFound
from dethpc.master.routes.access import Limit, Offset, Owner, Reading, TheMaster
from dethpc.master.routes.jobs import kind, pool_stats
from dethpc.master.service import Master
from dethpc.master.wire.base import paged
from dethpc.master.wire.cluster import Agent, AgentAnswer, Agents, ResourcePool, ResourcePools, SlotAnswer, Slots
from dethpc.master.wire.task import container_id
from dethpc.state import queries

router = APIRouter(prefix="/api/v1", tags=["cluster"])


@router.get("/resource-pools")
def resource_pools(
    master: TheMaster, connection: Reading, who: Owner, limit: Limit = 0, offset: Offset = 0
) -> ResourcePools:
    stats = pool_stats(connection)
    pools = [
        ResourcePool.of(info, kind=kind(master, info.name), cluster=master.cluster_name, stats=stats.get(info.name))
        for info in master.pools()
    ]
    found, pagination = paged(pools, offset, limit)
    return ResourcePools(resource_pools=found, pagination=pagination)


def _agents(master: Master, connection: Connection) -> list[Agent]:
    shares: dict[str, dict[str, int]] = {}
    for run in queries.live_runs(connection):
        if run.state is RunState.RUNNING and run.nodes:
            attempt = AttemptId(run.id, max(run.attempt, 0))
            for node in run.nodes:
                shares.setdefault(node, {})[container_id(attempt, node)] = run.slots // len(run.nodes)
    nodes = sorted(master.nodes(), key=lambda node: node.name)
    return [Agent.of(node, shares.get(node.name, {}), master.version) for node in nodes]


@router.get("/agents")
def agents(master: TheMaster, connection: Reading, who: Owner, limit: Limit = 0, offset: Offset = 0) -> Agents:
    found, pagination = paged(_agents(master, connection), offset, limit)
    return Agents(agents=found, pagination=pagination)


def _agent(master: Master, connection: Connection, name: str) -> Agent:
    for agent in _agents(master, connection):
        if agent.id == name:
            return agent
    raise NotFound(f"node {name} not found")


@router.get("/agents/{name}")
def agent(name: str, master: TheMaster, connection: Reading, who: Owner) -> AgentAnswer:
    return AgentAnswer(agent=_agent(master, connection, name))


@router.get("/agents/{name}/slots")
def slots(name: str, master: TheMaster, connection: Reading, who: Owner) -> Slots:
    return Slots(slots=list(_agent(master, connection, name).slots.values()))


@router.get("/agents/{name}/slots/{slot}")
def slot(name: str, slot: str, master: TheMaster, connection: Reading, who: Owner) -> SlotAnswer:
    found = _agent(master, connection, name).slots.get(slot.zfill(3))
    if found is None:
        raise NotFound(f"node {name} has no slot {slot}")
    return SlotAnswer(slot=found)
