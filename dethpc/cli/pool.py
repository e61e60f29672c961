"""``det resource-pool``."""

from __future__ import annotations

from collections.abc import Sequence

import click

from dethpc.cli import output
from dethpc.cli.connect import connect
from dethpc.cli.group import Failed, LazyGroup


def no_pool(name: str, known: Sequence[str]) -> Failed:
    """What to say to somebody who names a pool that is not there."""
    return Failed([f"there is no resource pool {name!r}; there are {', '.join(known)}"])


@click.group(
    cls=LazyGroup, lazy={"goodput": ("dethpc.cli.goodput:of_pools", "Show where the slot-hours of your trials went.")}
)
def pool() -> None:
    """Look at resource pools: named slices of the cluster."""


@pool.command("list")
@output.as_csv
@output.as_json
def list_pools(as_csv: bool, as_json: bool) -> None:
    """List the resource pools and how full they are."""
    from dethpc.client import cluster

    pools = cluster.resource_pools(connect())
    if as_json:
        output.print_json(pools)
        return
    rows = [
        [
            p.get("name"),
            output.state(p.get("slotType", "").replace("TYPE_", "")).lower(),
            p.get("numAgents"),
            p.get("slotsAvailable"),
            p.get("slotsUsed"),
            "default" if p.get("defaultComputePool") else "",
            p.get("description"),
        ]
        for p in pools
    ]
    output.print_table(["Name", "Type", "Nodes", "Slots", "Used", "Default", "Description"], rows, as_csv=as_csv)
