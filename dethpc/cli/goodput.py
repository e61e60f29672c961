"""``det experiment goodput`` and ``det resource-pool goodput``: where slots went."""

from __future__ import annotations

from typing import Any, Optional

import click

from dethpc.cli import output
from dethpc.cli.connect import connect
from dethpc.cli.pool import no_pool

_HEADERS = ["Allocated", "Useful", "Lost", "Overhead", "Waiting", "Goodput"]


@click.command("goodput")
@click.argument("experiment_id", metavar="ID", type=int)
@output.as_csv
@output.as_json
def of_experiment(experiment_id: int, as_csv: bool, as_json: bool) -> None:
    """Show where the slot-hours of an experiment and of each of its trials went."""
    from dethpc.client import experiments

    found = experiments.goodput(connect(), experiment_id)
    if as_json:
        output.print_json(found)
        return
    rows = [[trial["trialId"], *_hours(trial)] for trial in found["trials"]]
    output.print_table(["Trial", *_HEADERS], [*rows, ["all", *_hours(found["total"])]], as_csv=as_csv)


@click.command("goodput")
@click.argument("name", required=False)
@click.option("--days", type=click.FloatRange(0, min_open=True), default=30, help="Count runs of the last N days [30].")
@output.as_csv
@output.as_json
def of_pools(name: Optional[str], days: float, as_csv: bool, as_json: bool) -> None:
    """Show where the slot-hours of your trials in each pool went."""
    from dethpc.client import cluster

    session = connect()
    found = cluster.pools_goodput(session, days)
    if name is not None:
        found["pools"] = [pool for pool in found["pools"] if pool["resourcePool"] == name]
        known = [] if found["pools"] else [pool["name"] for pool in cluster.resource_pools(session)]
        if not found["pools"] and name not in known:
            raise no_pool(name, known)
    if as_json:
        output.print_json(found)
        return
    rows = [[pool["resourcePool"], *_hours(pool)] for pool in found["pools"]]
    output.print_table(["Resource pool", *_HEADERS], rows, as_csv=as_csv)


def _hours(slots: dict[str, Any]) -> list[str]:
    """Slot-hours, and the useful part of what was allocated."""
    names = ("allocated", "useful", "lost", "overhead", "waiting")
    return [*(f"{slots[name] / 3600:.2f}" for name in names), output.percent(slots["goodput"])]
