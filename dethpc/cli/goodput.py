"""``det experiment goodput`` and ``det resource-pool goodput``: where slots went."""

from __future__ import annotations

from typing import Optional

import click

from dethpc.cli import output, tables
from dethpc.cli.arguments import ID, Number, listing
from dethpc.cli.connect import connect
from dethpc.cli.pool import no_pool

_UNIT = "In slot-hours; goodput is the useful part of what was allocated."
_PART = tables.Kind("{:.2f}".format, "{:.2f}".format, right=True)


def _hours(name: str) -> tables.Column:
    return tables.Column(name.capitalize(), lambda slots: slots[name] / 3600, _PART)


_HOURS = [
    *map(_hours, ("allocated", "useful", "lost", "overhead", "waiting")),
    tables.Column("Goodput", "goodput", tables.PERCENT),
]


@click.command("goodput")
@ID
@listing
def of_experiment(experiment_id: int, wanted: tables.Wanted) -> None:
    """Show where the slot-hours of an experiment and of each of its trials went."""
    from dethpc.client import experiments

    found = experiments.goodput(connect(), experiment_id)
    if wanted.as_json:
        output.print_json(found)
        return
    rows = [*found["trials"], {"trialId": "all", **found["total"]}]
    tables.show(tables.Table([tables.Column("Trial", "trialId"), *_HOURS], rows, above=[_UNIT]), wanted)


@click.command("goodput")
@click.argument("name", required=False)
@click.option("--days", type=Number(0, min_open=True), default=30, help="Count runs of the last N days [30].")
@listing
def of_pools(name: Optional[str], days: float, wanted: tables.Wanted) -> None:
    """Show where the slot-hours of your trials in each pool went."""
    from dethpc.client import cluster

    session = connect()
    found = cluster.pools_goodput(session, days)
    if name is not None:
        found["pools"] = [pool for pool in found["pools"] if pool["resourcePool"] == name]
        known = [] if found["pools"] else [pool["name"] for pool in cluster.resource_pools(session)]
        if not found["pools"] and name not in known:
            raise no_pool(name, known)
    if wanted.as_json:
        output.print_json(found)
        return
    columns = [tables.Column("Resource pool", "resourcePool", least=12), *_HOURS]
    tables.show(tables.Table(columns, found["pools"], above=[_UNIT]), wanted)
