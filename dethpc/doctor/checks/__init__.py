"""One file per check: a pure judgement over the facts. The order here is that of a report."""

from __future__ import annotations

from types import ModuleType

from dethpc.doctor.checks import (
    access,
    accounting,
    banners,
    clock,
    containers,
    database,
    disk,
    gres,
    job_limits,
    job_memory,
    kill_wait,
    listening,
    login_node,
    munge,
    order,
    packages,
    pools,
    preemption,
    prologue,
    python,
    quota,
    rate_limit,
    reach,
    requeue,
    shape,
    shared_fs,
    signals,
    slurm,
    storage,
    time_limits,
    timeouts,
    umask,
)

FIRST = slurm
OF_SLURM: tuple[ModuleType, ...] = (
    banners,
    pools,
    access,
    shape,
    gres,
    time_limits,
    preemption,
    signals,
    kill_wait,
    requeue,
    order,
    job_limits,
    job_memory,
    timeouts,
    accounting,
    rate_limit,
    shared_fs,
)
"""Asked when Slurm answers; they are handed what it said."""

OF_MACHINES: tuple[ModuleType, ...] = (
    munge,
    storage,
    database,
    clock,
    listening,
    reach,
    prologue,
    python,
    containers,
    packages,
    login_node,
    disk,
    quota,
    umask,
)
