"""What a search will cost, before it is spent: the production engine against a cluster, training and a clock that are not real.

``simulate`` runs one experiment to its end in virtual time. ``simulation`` is the world with its clock, ``shell`` the master's
part in it, ``cluster`` nodes and their queue, ``jobs`` what run directories would hold, ``workloads`` what trials learn,
``faults`` what goes wrong, ``memory`` the database, ``traffic`` what the scheduler is asked,
``busy`` a day of a busy site, ``result`` the figures. The same seed gives the same simulation.
"""

from __future__ import annotations

from dethpc.simulator.faults import Faults
from dethpc.simulator.result import Result
from dethpc.simulator.simulation import Pace, Simulation, Site, simulate
from dethpc.simulator.workloads import PowerLaw, Replay, Workload

__all__ = ["Faults", "Pace", "PowerLaw", "Replay", "Result", "Simulation", "Site", "Workload", "simulate"]
