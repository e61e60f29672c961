"""The judge: production master, ledger, reconciler and run directories in virtual time, under one seed and every fault.

``story`` tells the whole of one seed. What is simulated: time (``clock``), Slurm (``slurm``), what runs on a compute node
(``node``, with the production claim, journal, checkpoints and end report) and the instant at which a file operation or a process
fails (``disk``). All else is production code on real files. It lives among the tests because no room of dethpc may join a
simulation to the master.
"""

from tests.simulator.world.story import Story, Violation, story

__all__ = ["Story", "Violation", "story"]
