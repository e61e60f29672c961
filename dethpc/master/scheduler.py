"""The scheduler of this master: Slurm by the site's pools and limits, or this machine."""

from __future__ import annotations

import importlib.util
import os
import shutil

from dethpc.config.site import SiteConfig
from dethpc.domain.ports import Scheduler
from dethpc.errors import ConfigError, Problem
from dethpc.master.runs.live import Pace
from dethpc.rundir.home import Home


def find_scheduler(home: Home, site: SiteConfig) -> tuple[Scheduler, Pace]:
    """What the site configuration says; else Slurm where there is one, and this machine where not.

    ``DETHPC_SCHEDULER`` overrides both. Raises ConfigError.
    """
    kind = os.environ.get("DETHPC_SCHEDULER") or site.scheduler
    if kind in ("auto", "slurm"):
        _check_conf()
    if kind == "auto":
        from dethpc.scheduler.slurm.commands import is_configured

        kind = "slurm" if is_configured() else "local"
    if kind == "local":
        from dethpc.scheduler.local import LocalScheduler

        slots = os.environ.get("DETHPC_LOCAL_SLOTS")
        return LocalScheduler(home.root, int(slots) if slots else None), Pace(
            0.3, 0.5, 5.0, min(1.0, site.limits.restart_delay)
        )
    if kind == "slurm":
        limits = site.limits
        slowest = max(limits.fastest_poll, limits.slowest_poll)
        pace = Pace(
            fastest_poll=limits.fastest_poll,
            slowest_poll=slowest,
            rest=limits.restart_delay,
            submit_at_once=limits.submit_at_once,
            smallest_array=limits.smallest_array,
        )
        return _slurm(site), pace
    raise ConfigError([Problem("DETHPC_SCHEDULER", repr(kind), "slurm or local")])


def _check_conf() -> None:
    """A Slurm that is gone is no reason to train on this machine, and its commands would look for their file for a minute."""
    conf = os.environ.get("SLURM_CONF")
    if conf and shutil.which("sbatch") and not os.path.exists(conf):
        hint = "unset SLURM_CONF for the Slurm of this machine; DETHPC_SCHEDULER=local trains without one"
        raise ConfigError([Problem("SLURM_CONF", f"{conf}, which is not there", "the slurm.conf of a cluster", hint)])


def _slurm(site: SiteConfig) -> Scheduler:
    """By its commands; read through pyslurm where that is installed, which means that it was built for this Slurm."""
    from dethpc.scheduler.slurm.commands import SlurmCommands
    from dethpc.scheduler.slurm.pools import SlurmPool
    from dethpc.scheduler.slurm.throttle import Throttle

    pools = [
        SlurmPool(
            name=name,
            partition=pool.partition or name,
            qos=pool.qos,
            account=pool.account,
            constraint=pool.constraint,
            reservation=pool.reservation,
            slot_type=pool.slot_type,
            gpu_type=pool.gpu_type,
            cpus_per_slot=pool.cpus_per_slot or 1,
            slots_per_node=pool.slots_per_node if pool.whole_nodes else None,
            default=name == site.pool,
            description=pool.description,
        )
        for name, pool in site.pools.items()
    ]
    rate = site.limits.submit_per_second
    throttle = None if rate is None else Throttle(rate, site.limits.submit_burst)
    if importlib.util.find_spec("pyslurm") is not None:
        from dethpc.scheduler.slurm.pyslurm_reader import SlurmPyslurm

        return SlurmPyslurm(pools, throttle=throttle)
    return SlurmCommands(pools, throttle=throttle)
