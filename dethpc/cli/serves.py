"""Which scheduler the user's own master serves, and whether this shell is set up for another."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any


def scheduler(master: Mapping[str, Any]) -> str:
    """``Slurm (/x/slurm.conf)`` or ``this machine (host)``, from master.json; "" for a master of an earlier release."""
    told = master.get("scheduler") or {}
    if told.get("kind") == "slurm":
        cluster = f", cluster {told['slurm_clusters']}" if told.get("slurm_clusters") else ""
        return f"Slurm ({told.get('slurm_conf') or 'its usual slurm.conf'}{cluster})"
    return f"the machine that it runs on, {master.get('host')}, without Slurm" if told else ""


def another(master: Mapping[str, Any], env: Mapping[str, str]) -> str:
    """Why what this shell submits goes elsewhere than the shell is set up for; "" when it does not."""
    told, wanted = master.get("scheduler") or {}, env.get("SLURM_CONF", "")
    if not told or not wanted or env.get("DETHPC_SCHEDULER"):
        return ""
    if told.get("chosen") not in (None, "", "DETHPC_SCHEDULER"):  # which another shell had set
        return ""
    if told.get("slurm_conf") and os.path.realpath(told["slurm_conf"]) == os.path.realpath(wanted):
        return ""
    return (
        f"your master was started without this shell's SLURM_CONF ({wanted}) and serves {scheduler(master)}; "
        "to switch, stop it, and the next command starts another: det master down"
    )


def another_cluster(master: Mapping[str, Any], env: Mapping[str, str]) -> str:
    """Why an experiment of this shell would go to another cluster than SLURM_CLUSTERS chooses; "" when it would not."""
    told, wanted = master.get("scheduler") or {}, env.get("SLURM_CLUSTERS", "").strip()
    if told.get("kind") != "slurm" or wanted == (served := told.get("slurm_clusters") or ""):
        return ""
    if not wanted:
        return ""  # the master's choice was made on purpose, and this shell has none
    serves = f"the cluster {served}" if served else "the cluster of its slurm.conf"
    return (
        f"this shell chooses the cluster {wanted} (SLURM_CLUSTERS), and your master serves {serves}. To use {wanted}, "
        "start a master of its own with another DETHPC_HOME, or, once no job of this one runs: det master down"
    )
