"""The environment of Slurm's commands and of what they submit."""

from __future__ import annotations

import os
from collections.abc import Mapping

from dethpc.errors import ConfigError, Problem
from dethpc.scheduler.slurm.runner import find_program

_LEAKS = (
    "SLURM_",
    "SLURMD_",
    "SBATCH_",
    "SALLOC_",
    "SQUEUE_",
    "SINFO_",
    "SCANCEL_",
    "SCONTROL_",
    "SACCT_",
    "PMI",
    "OMPI_",
    "PRTE_",
    "I_MPI_HYDRA_",
)
CHOOSE = frozenset({"SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_CLUSTERS", "SLURM_JWT"})
"""They say which cluster Slurm's commands speak to, and as whom."""

_NOT_ITS_OWN = frozenset(
    {"PGPASSWORD", "DETHPC_ELEMENT"}
)  # the master's database, the run in which a master was started


def scrub(environment: Mapping[str, str]) -> dict[str, str]:
    """Without what an enclosing job left there: a master that is itself a Slurm job would hand it on, and inner jobs fail by it.

    Without the variables that change what Slurm's commands print, too, and without the master's own secret. Those that choose the
    cluster stay.
    """
    inherited = {name: value for name, value in environment.items() if name not in _NOT_ITS_OWN}
    return {name: value for name, value in inherited.items() if name in CHOOSE or not name.startswith(_LEAKS)}


def cluster(environment: Mapping[str, str]) -> str:
    """The cluster that was chosen of those that one slurmdbd knows; "": the one of slurm.conf. Raises ConfigError: several."""
    chosen = environment.get("SLURM_CLUSTERS", "").strip()
    if "," in chosen or chosen == "all":
        hint = "choose one, and use another DETHPC_HOME for each other cluster: its master serves that"
        raise ConfigError([Problem.of_value("SLURM_CLUSTERS", repr(chosen), "the name of one cluster", hint)])
    return chosen


def of_submission(requested: Mapping[str, str], inherited: Mapping[str, str]) -> dict[str, str]:
    """What sbatch runs with for a job that wants these variables, by default all ``inherited``. The cluster is the inherited one,
    and its commands are on the job's PATH: the script uses them before it has an environment of its own."""
    environment = {name: value for name, value in scrub(requested or inherited).items() if name not in CHOOSE}
    environment.update({name: inherited[name] for name in sorted(CHOOSE & inherited.keys())})
    sbatch = find_program("sbatch", inherited.get("PATH"))
    folders = environment.get("PATH", "").split(os.pathsep)
    if sbatch and folders != [""] and os.path.dirname(sbatch) not in folders:
        environment["PATH"] = os.pathsep.join([*folders, os.path.dirname(sbatch)])
    return environment
