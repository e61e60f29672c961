"""``python3 -m determined.launch.mpi [[MPIRUN_OPTIONS...] --] SCRIPT...``: one MPI process per slot, by Open MPI's mpirun.

mpirun runs on the chief. Where it would log into another node by ssh, it asks the launcher of that node instead (``_remote``),
so that every process descends from its own node's task and ends with it. With ``--mpi=TYPE`` among the options, or where there
is no Open MPI, srun starts the processes (``_srun``).
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from typing import Mapping, Sequence

from dethpc.core._info import ClusterInfo
from dethpc.rundir.files import read_json
from dethpc.rundir.layout import AttemptDir

from . import _monitor, _remote, _srun, _task

NAME = "mpi"
INSTALL = (
    "load the site's Open MPI (module load openmpi, in startup-hook.sh or the site's prologue) or install openmpi-bin"
)
DIRECTORY_VARIABLE = "DETHPC_LAUNCH_DIRECTORY"
# The workers' directory differs from node to node, and mpirun only knows the chief's.
_HERE = f'cd "${DIRECTORY_VARIABLE}" && exec "$@"'
_RANKS = "OMPI_COMM_WORLD_RANK,PMIX_RANK,PMI_RANK"


def main(arguments: Sequence[str]) -> int:
    """Exit code of the first process that failed, else 0. Raises: Refused."""
    parser = _task.parser(
        NAME,
        "Run a script on all slots of the trial by mpirun.",
        "MPIRUN_OPTIONS",
        "options of mpirun, which come after those chosen here; with --mpi=TYPE (pmix, pmi2, ...) among them srun starts the "
        "processes, and they are options of srun",
    )
    command = _task.read(parser, arguments)
    info = _task.info(NAME)
    return run(info, command.overrides, command.script, _task.environment(info, USE_MPI="1"))


def run(info: ClusterInfo, options: Sequence[str], script: Sequence[str], env: Mapping[str, str]) -> int:
    """Run ``script`` under mpirun, with ``env`` on every node. Raises: Refused."""
    kind = next((word.partition("=")[2] for word in options if word.startswith("--mpi=")), None)
    mpirun = shutil.which("mpirun")
    if kind is not None or (_srun.available() and not (mpirun and _is_open_mpi(mpirun))):
        options = [word for word in options if not word.startswith("--mpi=")]
        return _srun.run(info, kind, options, script, env)
    if mpirun is None:
        raise _task.Refused(f"there is no mpirun on PATH; {INSTALL}")
    env = {**env, DIRECTORY_VARIABLE: os.getcwd()}
    if info.container_rank:
        return _remote.serve(info, env)
    _check(mpirun, options)
    # Slurm's part in mpirun would start the processes by srun: out of reach of each node's task, in the chief's environment.
    # Open MPI 5 also looks the hosts up in Slurm's allocation, which may know them by other names.
    env = {**{name: value for name, value in env.items() if name != "SLURM_JOBID"}, "PRTE_MCA_ras": "^slurm"}
    if len(info.container_addrs) == 1:
        return _monitor.run(
            [_monitor.Worker(command(info, mpirun, ["localhost"], options, script), env, shielded=True)]
        )
    names = _names(info)
    agent = shlex.join([sys.executable, "-m", f"{__package__}._remote", *names, "--"])
    env.update(
        OMPI_MCA_plm="rsh",
        OMPI_MCA_plm_rsh_agent=agent,
        OMPI_MCA_plm_rsh_no_tree_spawn="1",
        PRTE_MCA_plm="ssh",  # Open MPI 5 has these names
        PRTE_MCA_plm_ssh_agent=agent,
        PRTE_MCA_plm_ssh_no_tree_spawn="1",
    )
    with _remote.Relay(info):
        return _monitor.run([_monitor.Worker(command(info, mpirun, names, options, script), env, shielded=True)])


def command(
    info: ClusterInfo, mpirun: str, names: Sequence[str], options: Sequence[str], script: Sequence[str]
) -> list[str]:
    """mpirun with one process per slot, none of them bound to a core: a worker has threads of its own."""
    counts = [max(1, count) for count in info.container_slot_counts]
    hosts = ",".join(f"{name}:{count}" for name, count in zip(names, counts))
    chosen = ["-np", str(sum(counts)), "--host", hosts, "--bind-to", "none", "--leave-session-attached"]
    wrapped = [sys.executable, "-m", f"{__package__}.wrap_rank", _RANKS, "--", *script]
    return [mpirun, *chosen, *options, "/bin/sh", "-c", _HERE, "sh", *wrapped]


def _is_open_mpi(mpirun: str) -> bool:
    version = subprocess.run(
        [mpirun, "--version"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    return b"Open MPI" in version.stdout


def _check(mpirun: str, options: Sequence[str]) -> None:
    """Have mpirun read the options before it starts anything. Raises: Refused."""
    tried = subprocess.run(
        [mpirun, *options, "--version"],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
    )  # fmt: skip
    lines = [line.strip(" -") for line in tried.stdout.splitlines() if line.strip(" -")]
    if tried.returncode:
        raise _task.Refused(" ".join(lines[:3]) or f"mpirun ends with exit code {tried.returncode}")
    if not lines or "Open MPI" not in lines[0]:
        raise _task.Refused(
            f"only Open MPI's mpirun is supported, and {mpirun} is {lines[0] if lines else 'silent'}; {INSTALL}"
        )


def _names(info: ClusterInfo) -> list[str]:
    """Names of the attempt's nodes, by rank. mpirun knows its own; the others need not resolve."""
    assert info._attempt_dir is not None
    started = read_json(AttemptDir(info._attempt_dir).started) or {}
    names = [str(name) for name in started.get("nodes") or []]
    return names if len(set(names)) == len(info.container_addrs) else list(info.container_addrs)


if __name__ == "__main__":
    _task.main(NAME, main)
