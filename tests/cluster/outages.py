"""What goes wrong on a private Slurm, and how it gets well again."""

from __future__ import annotations

import os
import signal

from dethpc.deploy import processes
from dethpc.deploy.slurm_dev import START_SECONDS, Cluster, start_daemon, wait

UP = frozenset({"idle", "mix", "alloc", "comp"})


def wait_idle(cluster: Cluster, timeout: float = 300) -> None:
    """Wait until every node is idle."""
    wait(
        lambda: cluster.node_states() == dict.fromkeys(cluster.nodes, "idle"),
        timeout,
        f"{cluster.folder}: nodes not idle",
    )


def kill_node(cluster: Cluster, name: str, *, jobs_too: bool = False) -> None:
    """Kill a node's slurmd and have it marked down until ``start_node``, as after a crash.

    Its jobs' processes live on unless ``jobs_too``.
    """
    processes.kill(cluster.pids(f"slurmd-{name}"))
    if jobs_too:
        processes.kill(processes.job_processes(cluster.folder, name))
    cluster.run("scontrol", "update", f"nodename={name}", "state=down", "reason=slurmd died")


def start_node(cluster: Cluster, name: str) -> None:
    """Start a node's slurmd and wait until the node is back in service."""
    start_daemon(cluster, ["slurmd", "-N", name, "-f", str(cluster.conf)], f"slurmd-{name}")
    if cluster.node_states().get(name, "").startswith("down"):
        cluster.run("scontrol", "update", f"nodename={name}", "state=resume")
    wait(lambda: cluster.node_states().get(name, "").rstrip("*") in UP, START_SECONDS, f"node {name} does not come up")


def stop_controller(cluster: Cluster) -> None:
    """Stop slurmctld (its state is kept): commands get no connection."""
    for pid in cluster.pids("slurmctld"):
        processes.terminate(pid)


def start_controller(cluster: Cluster) -> None:
    start_daemon(cluster, ["slurmctld", "-f", str(cluster.conf)], "slurmctld")
    wait(lambda: bool(cluster.node_states()), START_SECONDS, "slurmctld does not answer")


def freeze_controller(cluster: Cluster) -> None:
    """Stop slurmctld in its tracks: it takes connections and never answers."""
    for pid in cluster.pids("slurmctld"):
        os.kill(pid, signal.SIGSTOP)


def thaw_controller(cluster: Cluster) -> None:
    for pid in cluster.pids("slurmctld"):
        os.kill(pid, signal.SIGCONT)
