"""``det slot``."""

from __future__ import annotations

from typing import Any

import click

from dethpc.cli import tables
from dethpc.cli.arguments import listing
from dethpc.cli.connect import connect, of_cluster
from dethpc.cli.group import LazyGroup


@click.group(cls=LazyGroup)
def slot() -> None:
    """Inspect slots (GPUs, or shares of a CPU node)."""


@slot.command("list")
@listing
def list_slots(layout: tables.Layout) -> None:
    """List every slot and whether it is free."""
    from dethpc.client.nouns import cluster

    slots = [
        {
            "agent_id": a["id"],
            "resource_pools": ", ".join(a.get("resourcePools") or []),
            "slot_id": s.get("id", key),
            "enabled": s.get("enabled", True),
            "type": (s.get("device") or {}).get("type", "").removeprefix("TYPE_").lower(),
            "device": (s.get("device") or {}).get("brand", ""),
            "use": _use(a, s),
        }
        for a in of_cluster(cluster.agents)
        for key, s in (a.get("slots") or {}).items()
    ]
    tables.show(tables.Table(_COLUMNS, slots), layout)


_COLUMNS = [
    tables.Column("Node", "agent_id"),
    tables.Column("Resource pool", "resource_pools", rank=2, least=12),
    tables.Column("Slot", "slot_id"),
    tables.Column("Enabled", "enabled", rank=1),
    tables.Column("Type", "type"),
    tables.Column("Device", "device", rank=3, least=12),
    tables.Column("Use", "use", least=16),
]


def _use(agent: dict[str, Any], slot: dict[str, Any]) -> str:
    """``trial 7``, the name of a task without one, ``another job`` or ``free``."""
    container = slot.get("container")
    if not container:
        return "free"
    for use in agent.get("uses") or []:
        if str(container["id"]).startswith(f"{use['allocationId']}@"):
            return f"trial {use['trialId']}" if use["trialId"] is not None else str(use["name"])
    return "another job"


@slot.command()
@click.argument("node")
@click.argument("slot_id", metavar="SLOT")
def enable(node: str, slot_id: str) -> None:
    """Not possible: Slurm assigns single slots. See det agent enable."""
    from dethpc.client.nouns import cluster

    cluster.change_slot(connect(), node, slot_id, "enable")


@slot.command()
@click.argument("node")
@click.argument("slot_id", metavar="SLOT")
def disable(node: str, slot_id: str) -> None:
    """Not possible: Slurm assigns single slots. See det agent disable."""
    from dethpc.client.nouns import cluster

    cluster.change_slot(connect(), node, slot_id, "disable")
