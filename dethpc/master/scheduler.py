"""The scheduler of this master: Slurm, with the pools and limits of the site, or the local scheduler."""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket

from dethpc.config.site import SiteConfig
from dethpc.domain.ports import Scheduler
from dethpc.errors import ConfigError, Problem, StoreError
from dethpc.master.scheduler_settings import SchedulerSettings
from dethpc.master.watching.live_runs import Pace
from dethpc.rundir.home import Home
from dethpc.state import absent, queries, reading


def find_scheduler(home: Home, site: SiteConfig) -> tuple[Scheduler, Pace]:
    """What the site configuration says; else Slurm where there is one, and this machine where not.

    ``DETHPC_SCHEDULER`` overrides both. A shell without Slurm's commands, such as cron's, is no reason to train on this machine:
    Slurm is reached as the last master reached it. Raises ConfigError, StoreError.
    """
    kind = _kind(home, site, SchedulerSettings.read(home))
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
    raise ConfigError([Problem.of_value("DETHPC_SCHEDULER", repr(kind), "slurm or local")])


def _kind(home: Home, site: SiteConfig, before: SchedulerSettings) -> str:
    named = os.environ.get("DETHPC_SCHEDULER", "")
    kind = named or site.scheduler
    killed = bool(home.own_master().get("pid"))  # trials run where it had sent them
    if kind != "local" and before.kind == "slurm":
        before.lend(os.environ, whole=killed and not named)
    if kind in ("auto", "slurm"):
        _check_conf()
    if kind != "auto":
        return kind
    if killed and before.kind == "local" and before.host == socket.gethostname():
        return "local"
    from dethpc.scheduler.slurm.commands import is_configured

    kind = "slurm" if is_configured() else "local"
    if not before.kind or kind == before.kind:
        return kind
    if kind == "local":
        return "local" if before.is_gone and not _has_open_jobs(home, site) else "slurm"
    return "local" if before.host == socket.gethostname() and _has_open_jobs(home, site) else "slurm"


def _has_open_jobs(home: Home, site: SiteConfig) -> bool:
    """Whether the database has runs that were submitted and have not ended; True where it cannot be read yet."""
    url = site.database or home.database_url
    if absent(url):
        return False
    try:
        with reading(url) as connection:
            return queries.has_open_jobs(connection)
    except StoreError:  # an earlier release wrote it: it is brought up to date later
        return True


def _check_conf() -> None:
    """A Slurm that is gone is no reason to train on this machine, and its commands would look for their file for a minute."""
    conf = os.environ.get("SLURM_CONF")
    if conf and shutil.which("sbatch") and not os.path.exists(conf):
        hint = "unset SLURM_CONF for the Slurm of this machine; DETHPC_SCHEDULER=local trains without one"
        raise ConfigError([Problem("SLURM_CONF", f"there is no file {conf}", hint)])


def _slurm(site: SiteConfig) -> Scheduler:
    """By its commands; read through pyslurm where that is installed, which means that it was built for this Slurm."""
    from dethpc.scheduler.slurm.commands import SlurmCommands
    from dethpc.scheduler.slurm.environment import cluster
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
    if importlib.util.find_spec("pyslurm") is not None and not cluster(
        os.environ
    ):  # it reads slurm.conf's cluster alone
        from dethpc.scheduler.slurm.pyslurm_reader import SlurmPyslurm

        return SlurmPyslurm(pools, throttle=throttle)
    return SlurmCommands(pools, throttle=throttle)
