"""What a search will cost, before it is spent: the production engine against a cluster, training and a clock that are not real.

``simulate`` runs one experiment to its end in virtual time. ``simulation`` is the world, made of a ``clock``, the ``slots`` of
a ``cluster``, the ``training`` of trials (what they learn: ``workloads``; what they leave on disk: ``jobs``) and ``trouble``
(which ``faults``, and how many). ``shell`` is the master's part in it, ``memory`` its database, ``polls`` and ``traffic`` what it
asks of the scheduler. ``site`` is what a simulation is given, ``figures`` and ``result`` what comes of it, ``busy`` a day of a
busy site. The same seed gives the same simulation.
"""

from __future__ import annotations

from dethpc.simulator.faults import Faults
from dethpc.simulator.result import Result
from dethpc.simulator.simulation import Master, Simulation, simulate
from dethpc.simulator.site import Pace, Site
from dethpc.simulator.workloads import PowerLaw, Replay, Workload

__all__ = ["Faults", "Master", "Pace", "PowerLaw", "Replay", "Result", "Simulation", "Site", "Workload", "simulate"]
