"""What the user's own master is: which scheduler it serves, whether this shell is set up for another, and whether it is of another
build than ``det``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import click

from dethpc import errors
from dethpc.cli.group import Settings


def scheduler(master: Mapping[str, Any]) -> str:
    """``Slurm (/x/slurm.conf)`` or ``this machine (host)``, from master.json; "" for a master of an earlier release."""
    record = master.get("scheduler") or {}
    if record.get("kind") == "slurm":
        cluster = f", cluster {record['slurm_clusters']}" if record.get("slurm_clusters") else ""
        return f"Slurm ({record.get('slurm_conf') or 'its usual slurm.conf'}{cluster})"
    return f"the machine that it runs on, {master.get('host')}, without Slurm" if record else ""


def serves_another(master: Mapping[str, Any], env: Mapping[str, str]) -> str:
    """Why what this shell submits goes elsewhere than the shell is set up for; "" when it does not."""
    record, slurm_conf = master.get("scheduler") or {}, env.get("SLURM_CONF", "")
    if not record or not slurm_conf or env.get("DETHPC_SCHEDULER"):
        return ""
    if record.get("chosen") not in (None, "", "DETHPC_SCHEDULER"):  # which another shell had set
        return ""
    if record.get("slurm_conf") and os.path.realpath(record["slurm_conf"]) == os.path.realpath(slurm_conf):
        return ""
    return (
        f"your master was started without this shell's SLURM_CONF ({slurm_conf}) and serves {scheduler(master)}; "
        "to switch, stop it, and the next command starts another: det master down"
    )


def serves_another_cluster(master: Mapping[str, Any], env: Mapping[str, str]) -> str:
    """Why an experiment of this shell would go to another cluster than SLURM_CLUSTERS chooses; "" when it would not."""
    record, cluster = master.get("scheduler") or {}, env.get("SLURM_CLUSTERS", "").strip()
    if record.get("kind") != "slurm" or cluster == (served := record.get("slurm_clusters") or ""):
        return ""
    if not cluster:
        return ""  # the master's choice was made on purpose, and this shell has none
    serves = f"the cluster {served}" if served else "the cluster of its slurm.conf"
    return (
        f"this shell chooses the cluster {cluster} (SLURM_CLUSTERS), and your master serves {serves}. To use {cluster}, "
        "start a master of its own with another DETHPC_HOME, or, once no job of this one runs: det master down"
    )


ANOTHER_BUILD = (
    "your master runs another build of dethpc than det: det master down ends the master, and the next det starts this build. "
    "Jobs go on meanwhile"
)


def is_another_build() -> bool:
    """Whether the user's own master runs, and is of another build. Source trees have none to compare."""
    from dethpc.client import home, release
    from dethpc.rundir.home import Home

    settings = click.get_current_context().find_object(Settings)
    held = Home(home()).own_master() if settings is None or not settings.master else {}
    own = release.build()
    return bool(own and held.get("url")) and held.get("build") != own


def build_advice(error: errors.DethpcError) -> str:
    """``ANOTHER_BUILD`` where that may be why the master answered so, else ""."""
    return ANOTHER_BUILD if isinstance(error, errors.APIException) and is_another_build() else ""
