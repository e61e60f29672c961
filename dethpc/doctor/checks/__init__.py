"""Checks of a site, grouped by subject: each is a pure function of the facts, named as the report names it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from dethpc.doctor.checks import files, login, nodes, pools, scheduling, slurm
from dethpc.doctor.facts import Facts, Slurm
from dethpc.doctor.finding import Finding

Check = Callable[[Facts], Iterator[Finding]]
SlurmCheck = Callable[[Facts, Slurm], Iterator[Finding]]

FIRST: Check = slurm.slurm
OF_SLURM: tuple[SlurmCheck, ...] = (
    slurm.banners,
    pools.pools,
    pools.access,
    pools.shape,
    pools.gres,
    pools.time_limits,
    scheduling.preemption,
    scheduling.signals,
    scheduling.kill_wait,
    scheduling.requeue,
    scheduling.order,
    slurm.job_limits,
    slurm.job_memory,
    slurm.timeouts,
    slurm.accounting,
    slurm.rate_limit,
    nodes.shared_fs,
)
"""Checks that need Slurm's answers, in the order of a report."""

OF_MACHINES: tuple[Check, ...] = (
    login.munge,
    files.storage,
    files.database,
    nodes.clock,
    login.listening,
    nodes.reach,
    nodes.prologue,
    nodes.python,
    nodes.containers,
    login.services,
    login.packages,
    login.login_node,
    files.disk,
    files.quota,
    files.umask,
)
"""Checks of login and compute nodes, in the order of a report."""
