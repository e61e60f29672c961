"""What is written for Slurm to read: slurm.conf, gres.conf and cgroup.conf of a private cluster."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from pathlib import Path

from dethpc.deploy import accounting as accounting_daemons
from dethpc.deploy.shape import Shape


def gres_conf(shape: Shape, folder: Path) -> Iterator[str]:
    """Lines of gres.conf, and the devices that they name."""
    for group in shape.node_groups:
        for node in group.names:
            for kind, count in group.gpus.items():
                for i in range(count):
                    # Slurm asks only that the file be a character device; a link needs no root and has a number of its own.
                    device = folder / "dev" / f"{node}-{kind}gpu{i}"
                    device.symlink_to("/dev/null")
                    yield f"NodeName={node} Name=gpu{f' Type={kind}' if kind else ''} File={device}\n"


def cgroup_conf(version: str) -> str:
    """cgroup.conf for the release that says ``version`` of itself: since 23.11 slurmd wants cgroups unless told otherwise, and
    this machine may have none to give. Empty: older releases do not know the word."""
    release = re.search(r"(\d+)\.(\d+)", version)
    return "CgroupPlugin=disabled\n" if release and (int(release[1]), int(release[2])) >= (23, 11) else ""


def slurm_conf(shape: Shape, folder: Path, user: str, ports: list[int]) -> Iterator[str]:
    """Lines of slurm.conf. ``ports``: slurmctld's, one for each node, slurmdbd's."""
    host = socket.gethostname().split(".")[0]
    controller, *node_ports, accounting_port = ports
    yield from (
        "ClusterName=dev",
        f"SlurmctldHost={host}(127.0.0.1)",
        f"SlurmctldPort={controller}",
        f"SlurmUser={user}",
        f"SlurmdUser={user}",
        "AuthType=auth/munge",
        "CredType=cred/munge",
        f"AuthInfo=socket={folder}/run/munge.socket,cred_expire={shape.requeue_delay}",
        f"StateSaveLocation={folder}/state",
        f"SlurmdSpoolDir={folder}/spool/%n",
        f"SlurmctldPidFile={folder}/run/slurmctld.pid",
        f"SlurmdPidFile={folder}/run/slurmd-%n.pid",
        f"SlurmctldLogFile={folder}/log/slurmctld.log",
        f"SlurmdLogFile={folder}/log/slurmd-%n.log",
        "ProctrackType=proctrack/linuxproc",
        "TaskPlugin=task/none",
        "SelectType=select/cons_tres",
        "SelectTypeParameters=CR_Core",
        "MpiDefault=none",
        "PropagateResourceLimits=NONE",
        "SlurmdParameters=config_overrides",
        "ReturnToService=1",  # with 2, an answer that is still under way brings a killed node back for a moment
        "SchedulerType=sched/backfill",
        f"PriorityType=priority/{shape.priority}",  # which of them is the default depends on the release
        # Start and end jobs as soon as Slurm can: a person or a test is waiting.
        "SchedulerParameters=batch_sched_delay=0,sched_interval=1,sched_min_interval=0,bf_interval=1,default_queue_depth=1000",
        "PreemptType=preempt/partition_prio",
        "PreemptMode=REQUEUE",
        f"KillWait={shape.kill_wait}",
        f"MinJobAge={shape.min_job_age}",
        f"SlurmdTimeout={shape.slurmd_timeout}",
        f"MessageTimeout={shape.message_timeout}",
    )
    if any(group.gpus for group in shape.node_groups):
        yield "GresTypes=gpu"
    if shape.accounting:
        yield from accounting_daemons.slurm_conf(folder, accounting_port)
    yield from shape.extra
    ports_left = iter(node_ports)
    for group in shape.node_groups:
        more = f" Gres={group.gres}" if group.gpus else ""
        more += f" Feature={','.join(group.features)}" if group.features else ""
        for node in group.names:
            yield (
                f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={next(ports_left)} "
                f"CPUs={group.cpus} RealMemory={group.memory_mb}{more}"
            )
    for name, options in shape.partitions.items():
        yield f"PartitionName={name} {'' if 'Nodes=' in options else 'Nodes=ALL '}State=UP {options}"
