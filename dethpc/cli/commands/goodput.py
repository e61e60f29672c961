"""``det experiment goodput`` and ``det resource-pool goodput``: how the hours of slots were spent."""

from __future__ import annotations

from typing import Optional

import click

from dethpc.cli import tables
from dethpc.cli.arguments import ID, Number, listing
from dethpc.cli.connect import connect
from dethpc.cli.nouns.pool import no_pool

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
def of_experiment(experiment_id: int, layout: tables.Layout) -> None:
    """Show where the slot-hours of an experiment and of each of its trials went."""
    from dethpc.client.nouns import experiments

    answer = experiments.goodput(connect(), experiment_id)
    rows = [*answer["trials"], {"trialId": "all", **answer["total"]}]
    tables.show(tables.Table([tables.Column("Trial", "trialId"), *_HOURS], rows, above=[_UNIT]), layout, answer)


@click.command("goodput")
@click.argument("name", required=False)
@click.option("--days", type=Number(0, min_open=True), default=30, help="Count runs of the last N days [30].")
@listing
def of_pools(name: Optional[str], days: float, layout: tables.Layout) -> None:
    """Show where the slot-hours of your trials in each pool went."""
    from dethpc.client.nouns import cluster

    session = connect()
    answer = cluster.pools_goodput(session, days)
    if name is not None:
        answer["pools"] = [pool for pool in answer["pools"] if pool["resourcePool"] == name]
        names = [] if answer["pools"] else [pool["name"] for pool in cluster.resource_pools(session)]
        if not answer["pools"] and name not in names:
            raise no_pool(name, names)
    columns = [tables.Column("Resource pool", "resourcePool", least=12), *_HOURS]
    tables.show(tables.Table(columns, answer["pools"], above=[_UNIT]), layout, answer)
