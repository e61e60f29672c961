"""The environment of Slurm's commands and of what they submit."""

from __future__ import annotations

from collections.abc import Mapping

_LEAKS = (
    "SLURM_",
    "SLURMD_",
    "SBATCH_",
    "SALLOC_",
    "SQUEUE_",
    "SINFO_",
    "SCANCEL_",
    "PMI",
    "OMPI_",
    "PRTE_",
    "I_MPI_HYDRA_",
)
_KEPT = frozenset({"SLURM_CONF"})
_SECRET = frozenset({"PGPASSWORD"})  # of the master's database


def scrub(environment: Mapping[str, str]) -> dict[str, str]:
    """Without what an enclosing job left there: a master that is itself a Slurm job would hand it on, and inner jobs fail by it.

    Without the variables that change what Slurm's commands print, too, and without the master's own secret. SLURM_CONF stays: it
    says which cluster.
    """
    known = {name: value for name, value in environment.items() if name not in _SECRET}
    return {name: value for name, value in known.items() if name in _KEPT or not name.startswith(_LEAKS)}
