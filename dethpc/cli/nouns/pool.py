"""``det resource-pool``."""

from __future__ import annotations

from collections.abc import Sequence

import click

from dethpc.cli import output, tables
from dethpc.cli.arguments import listing
from dethpc.cli.connect import of_cluster
from dethpc.cli.group import Failed, LazyGroup


def no_pool(name: str, names: Sequence[str]) -> Failed:
    """What to say to somebody who names a pool that is not there."""
    return Failed([f"there is no resource pool {name!r}; there are {', '.join(names)}"])


@click.group(
    cls=LazyGroup,
    lazy={"goodput": ("dethpc.cli.commands.goodput:of_pools", "Show where the slot-hours of your trials went.")},
)
def pool() -> None:
    """Inspect resource pools, the named slices of the cluster."""


@pool.command("list")
@listing
def list_pools(layout: tables.Layout) -> None:
    """List the resource pools and how full they are."""
    from dethpc.client.nouns import cluster

    pools = of_cluster(cluster.resource_pools)
    tables.show(tables.Table(_COLUMNS, pools), layout)


_COLUMNS = [
    tables.Column("Name", "name"),
    tables.Column("Type", lambda p: output.state(p.get("slotType", "").replace("TYPE_", "")).lower(), rank=2),
    tables.Column("Nodes", "numAgents", tables.COUNT),
    tables.Column("Slots", "slotsAvailable", tables.COUNT),
    tables.Column("Used", "slotsUsed", tables.COUNT),
    tables.Column("Default", lambda p: "default" if p.get("defaultComputePool") else ""),
    tables.Column("Description", "description", rank=1, least=16),
]
