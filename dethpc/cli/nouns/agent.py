"""``det agent``: Determined's word for a compute node."""

from __future__ import annotations

import sys
from typing import Any, Optional

import click

from dethpc.cli import output, tables
from dethpc.cli.arguments import listing
from dethpc.cli.connect import connect, of_cluster
from dethpc.cli.group import LazyGroup

_NODE = click.argument("node", metavar="[NODE]", required=False)
_ALL = click.option("--all", "every", is_flag=True, help="Every node.")


@click.group(cls=LazyGroup)
def agent() -> None:
    """Inspect the compute nodes, and keep trials off some of them."""


@agent.command("list")
@listing
def list_agents(layout: tables.Layout) -> None:
    """List the compute nodes, who uses them, and which are excluded and why."""
    from dethpc.client.nouns import cluster

    agents = of_cluster(cluster.agents)
    tables.show(tables.Table(_COLUMNS, agents), layout)


def _used(agent: dict[str, Any]) -> int:
    return sum(1 for slot in (agent.get("slots") or {}).values() if slot.get("container"))


def users(agent: dict[str, Any]) -> str:
    """``trial 7 (experiment 2), 3 other jobs``."""
    ours = [
        f"trial {use['trialId']} (experiment {use['experimentId']})" if use["trialId"] is not None else use["name"]
        for use in agent.get("uses") or []
    ]
    others = agent.get("otherJobs") or 0
    return ", ".join([*ours, *([output.plural(others, "other job")] if others else [])])


def _state(agent: dict[str, Any]) -> str:
    """The scheduler's word; behind it what dethpc itself says of the node."""
    plain = "draining" if agent.get("draining") else "enabled" if agent.get("enabled", True) else "disabled"
    state = str(agent.get("state") or plain)
    if not agent.get("excluded"):
        return state
    until = agent.get("excludedUntil")
    return f"{state}, excluded until {output.when(until)}" if until else f"{state}, disabled"


_COLUMNS = [
    tables.Column("Node", "id"),
    tables.Column("Resource pool", lambda a: ", ".join(a.get("resourcePools") or []), rank=2, least=12),
    tables.Column("Slots", lambda a: len(a.get("slots") or {}), tables.COUNT),
    tables.Column("Used", _used, tables.COUNT),
    tables.Column("Used by", users, least=20),
    tables.Column("State", _state, least=12),
    tables.Column("Address", lambda a: ", ".join(a.get("addresses") or []), rank=3),
    tables.Column("Reason", "reason", rank=1, least=16),
]


@agent.command()
@_NODE
@_ALL
def enable(node: Optional[str], every: bool) -> None:
    """Let trials use a node again, and forget the failures counted against it."""
    from dethpc.client.nouns import cluster

    session = connect()
    for name in _names(session, node, every):
        agent = cluster.enable_agent(session, name)
        output.say(f"Enabled {name}")
        if not agent.get("enabled"):
            output.say(f"{name} is {agent.get('state')} in the scheduler: only an administrator can resume it there")


@agent.command()
@_NODE
@_ALL
@click.option("--reason", default="", help="The reason, shown by det agent list.")
@click.option("--drain", is_flag=True, help="Let the trials that run there finish.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask before all nodes are disabled, as a terminal does.")
def disable(node: Optional[str], every: bool, reason: str, drain: bool, yes: bool) -> None:
    """Send no more trials to a node, if enough others are left. Trials that run there save a checkpoint and resume elsewhere."""
    from dethpc.client.nouns import cluster

    session = connect()
    names = _names(session, node, every)
    if every and not yes and sys.stdin.isatty():  # scripts written for Determined say no --yes
        click.confirm(f"Disable {', '.join(names)}, so that no trial starts until you enable one?", abort=True)
    for name in names:
        notes = cluster.disable_agent(session, name, reason, drain=drain)
        output.say(f"Disabled {name}")
        for note in notes:
            output.say(f"warning: {note}")


def _names(session: Any, node: Optional[str], every: bool) -> list[str]:
    from dethpc.client.nouns import cluster

    if bool(node) == every:
        raise click.UsageError("Give a node or --all.")
    return [node] if node else [str(agent["id"]) for agent in cluster.agents(session)]
