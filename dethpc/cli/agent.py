"""``det agent``: Determined's word for a compute node."""

from __future__ import annotations

import click

from dethpc.cli import output
from dethpc.cli.connect import connect
from dethpc.cli.nouns import Nouns


@click.group(cls=Nouns)
def agent() -> None:
    """Look at the compute nodes."""


@agent.command("list")
@output.as_csv
@output.as_json
def list_agents(as_csv: bool, as_json: bool) -> None:
    """List the compute nodes."""
    from dethpc.client import cluster

    agents = cluster.agents(connect())
    if as_json:
        output.print_json(agents)
        return
    rows = []
    for a in agents:
        slots = list((a.get("slots") or {}).values())
        used = sum(1 for s in slots if s.get("container"))
        state = "draining" if a.get("draining") else "enabled" if a.get("enabled", True) else "disabled"
        rows.append(
            [
                a["id"],
                ", ".join(a.get("resourcePools") or []),
                len(slots),
                used,
                a.get("state") or state,
                ", ".join(a.get("addresses") or []),
                a.get("reason"),
            ]
        )
    output.print_table(["Node", "Resource pool", "Slots", "Used", "State", "Address", "Reason"], rows, as_csv=as_csv)
