"""``det version``."""

from __future__ import annotations

from typing import Any

import click

import dethpc
from dethpc import errors
from dethpc.cli import output, own_master
from dethpc.cli.connect import connect, named_master


@click.command()
@output.as_json
def version(as_json: bool) -> None:
    """Show the versions of det and, if one is running, of the master. Does not start a master.

    If you named a master (-m, DET_MASTER) that does not answer, this is an error.
    """
    from dethpc.client.nouns import cluster

    master: dict[str, Any] = {}
    try:
        session = connect(start=False)
        about = cluster.master(session)
        master = {"url": session.url, "version": about.get("dethpcVersion") or about.get("version")}
        master.update(
            api=about.get("version"), cluster_id=about.get("clusterId"), cluster_name=about.get("clusterName")
        )
    except errors.MasterUnreachable:
        if named_master():
            raise
    if as_json:
        output.print_json({"client": {"version": dethpc.__version__}, "master": master})
        return
    if master and own_master.is_another_build():
        output.say(f"note: {own_master.ANOTHER_BUILD}")
    output.print_fields([("det", dethpc.__version__), ("master", master.get("version") or "does not run")])
    output.print_fields(
        [("address", master.get("url")), ("REST API", master.get("api")), ("cluster", master.get("cluster_id"))]
    )
