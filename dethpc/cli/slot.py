"""``det slot``."""

from __future__ import annotations

import click

from dethpc.cli import output
from dethpc.cli.connect import connect
from dethpc.cli.nouns import Nouns


@click.group(cls=Nouns)
def slot() -> None:
    """Look at slots (GPUs, or shares of a CPU node)."""


@slot.command("list")
@output.as_csv
@output.as_json
def list_slots(as_csv: bool, as_json: bool) -> None:
    """List every slot and whether it is free."""
    from dethpc.client import cluster

    slots = [
        {
            "agent_id": a["id"],
            "resource_pools": ", ".join(a.get("resourcePools") or []),
            "slot_id": s.get("id", key),
            "enabled": s.get("enabled", True),
            "type": (s.get("device") or {}).get("type", "").removeprefix("TYPE_").lower(),
            "device": (s.get("device") or {}).get("brand", ""),
            "use": "used" if s.get("container") else "free",
        }
        for a in cluster.agents(connect())
        for key, s in (a.get("slots") or {}).items()
    ]
    if as_json:
        output.print_json(slots)
        return
    headers = ["Node", "Resource pool", "Slot", "Enabled", "Type", "Device", "Use"]
    output.print_table(headers, [list(s.values()) for s in slots], as_csv=as_csv)
