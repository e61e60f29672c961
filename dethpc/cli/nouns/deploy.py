"""``det deploy``: clusters for trying and testing."""

from __future__ import annotations

import os
import shlex
import time
from typing import Optional

import click

from dethpc import errors
from dethpc.cli import output
from dethpc.cli.group import LazyGroup
from dethpc.cli.output import as_json, print_json
from dethpc.rundir.home import home


@click.group(cls=LazyGroup)
def deploy() -> None:
    """Start a private cluster for trying and testing."""


@deploy.group("slurm-dev")
def slurm_dev() -> None:
    """Run a real Slurm on this machine: several nodes on one host, in one folder."""


def _default_folder() -> str:
    return str(home() / "slurm-dev")


def _folder_in_use() -> str:
    from dethpc.deploy import slurm_dev

    return str(slurm_dev.in_use() or _default_folder())


_folder = click.option(
    "--folder",
    type=click.Path(),
    default=_folder_in_use,
    help="The cluster's directory. Default: what SLURM_CONF points at.",
)


@slurm_dev.command()
@click.option("--folder", type=click.Path(), default=_default_folder, help="The cluster's directory.")
@click.option("--nodes", type=click.IntRange(1, 64), default=4, show_default=True, help="Number of nodes.")
@click.option(
    "--gpus-per-node", type=click.IntRange(0, 64), default=4, show_default=True, help="Simulated GPUs per node."
)
@click.option("--gpu-type", default="", metavar="TYPE", help="The GPUs' type in Slurm, such as a100. Default: no type.")
@click.option("--cpus-per-node", type=click.IntRange(1, 1024), default=8, show_default=True, help="CPUs per node.")
@click.option("--accounting", is_flag=True, help="Also run slurmdbd and MariaDB, so that sacct works.")
def up(folder: str, nodes: int, gpus_per_node: int, gpu_type: str, cpus_per_node: int, accounting: bool) -> None:
    """Start the cluster; prints the line that makes a shell use it.

    \b
      eval "$(det deploy slurm-dev up)"
    """
    from dethpc.deploy import slurm_dev

    start = time.monotonic()
    shape = slurm_dev.Shape(
        nodes=nodes,
        gpus_per_node=gpus_per_node,
        gpu_type=gpu_type,
        cpus_per_node=cpus_per_node,
        accounting=accounting,
    )
    cluster = slurm_dev.up(folder, shape)
    took = time.monotonic() - start
    output.echo(f"{nodes} nodes with {gpus_per_node} GPUs each are idle after {took:.1f} s in {folder}", err=True)
    output.echo(f"export SLURM_CONF={shlex.quote(str(cluster.conf))}")


@slurm_dev.command()
@_folder
def down(folder: str) -> None:
    """Stop every process of the cluster and remove its folder."""
    from dethpc.deploy import slurm_dev

    used = slurm_dev.in_use()
    ended = slurm_dev.down(folder)
    if ended is None:
        raise _no_cluster(folder)
    output.echo(f"Ended {ended} daemons of {folder}")
    if used is not None and not used.exists():
        output.say("This shell still has SLURM_CONF; to use another Slurm: unset SLURM_CONF")


def _no_cluster(folder: str) -> errors.NotFound:
    conf = os.environ.get("SLURM_CONF")
    elsewhere = f"; SLURM_CONF points at {os.path.dirname(conf) or conf}" if conf else ""
    return errors.NotFound(f"no cluster in {os.path.abspath(folder)}{elsewhere}")


@slurm_dev.command()
@_folder
@as_json
def status(folder: str, as_json: Optional[bool]) -> None:
    """Show which daemons run and the state of each node. The exit code is 1 if there is no cluster."""
    from dethpc.deploy import slurm_dev

    try:
        daemons, nodes = slurm_dev.status(folder)
    except errors.NotFound:
        raise _no_cluster(folder) from None
    if as_json:
        print_json({"daemons": daemons, "nodes": nodes})
        return
    for name, runs in daemons.items():
        node = nodes.get(name.removeprefix("slurmd-"), "") if name.startswith("slurmd-") else ""
        output.echo(f"{name:<12} {'running' if runs else 'not running'}{f', {node}' if node else ''}")
