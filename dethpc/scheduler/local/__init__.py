"""The local scheduler: runs the rendered batch scripts on this machine when there is no Slurm.

scheduler.py   the adapter of ``ports.Scheduler``
jobs.py        the table of jobs: one SQLite file, which everything below shares
queue.py       who starts next; who has died
supervisor.py  the process that runs one job, and outlives whoever submitted it
processes.py   what /proc says
devices.py     the slots of this machine
"""

from dethpc.scheduler.local.scheduler import LocalScheduler

__all__ = ["LocalScheduler"]
