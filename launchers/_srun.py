"""MPI processes started by srun itself, for MPIs whose mpirun does not know Slurm's allocation, or that have none.

srun runs on the chief and starts a task for each slot, in the chief's environment. A task takes that of its own node: the
launcher there has left it in the attempt's directory.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Mapping, NoReturn, Optional, Sequence

from dethpc.core._info import ClusterInfo
from dethpc.errors import RunDirError
from dethpc.rundir.files import read_json, write_json

from . import _monitor, _remote, _task

RANKS = "PMIX_RANK,PMI_RANK,SLURM_PROCID"
PATIENCE = 120.0  # seconds for the launchers of the other nodes to have left word
_FOLDER = "DETHPC_LAUNCH_FOLDER"
_LIKED = ("pmix", "cray_shasta", "pmi2")
_STEPS = re.compile(r"SLURM|PMI|I_MPI_PMI")


def run(
    info: ClusterInfo, kind: Optional[str], options: Sequence[str], script: Sequence[str], env: Mapping[str, str]
) -> int:
    """Run ``script`` on all slots by ``srun --mpi=kind``, by default the best kind that this Slurm has. Raises: Refused."""
    assert info._attempt_dir is not None
    folder = Path(info._attempt_dir)
    if info.container_rank:
        write_json(_file(folder, info.container_rank), {**env, "PWD": os.getcwd()})
        return _remote.serve(info, env)
    kinds = _kinds()
    if kind is None:
        kind = next((liked for liked in _LIKED if liked in kinds), None)
    if kind is None or kind not in kinds:
        raise _task.Refused(
            f"srun --mpi has {', '.join(kinds)} here" + (f", not {kind}" if kind else ": nothing for MPI")
        )
    write_json(_file(folder, 0), {**env, "PWD": os.getcwd()})
    counts = [max(1, count) for count in info.container_slot_counts]
    if len(set(counts)) > 1:
        raise _task.Refused(f"srun starts equally many processes on every node, and the slots here are {counts}")
    argv = ["srun", "--overlap", f"--mpi={kind}", f"--nodes={len(counts)}", f"--ntasks={sum(counts)}"]
    argv += [
        f"--ntasks-per-node={counts[0]}",
        "--export=ALL",
        "--cpu-bind=none",
        "--input=none",
        "--kill-on-bad-exit=1",
    ]
    cpus = env.get("SLURM_CPUS_ON_NODE", "")
    if cpus.isdigit():  # the share of a rank: srun before 22.05 takes the variable for a request
        env = {**env, "SLURM_CPUS_PER_TASK": str(max(1, int(cpus) // counts[0]))}
    worker = [sys.executable, "-m", f"{__package__}._srun", *script]
    with _remote.Relay(info):
        return _monitor.run([_monitor.Worker([*argv, *options, *worker], {**env, _FOLDER: str(folder)}, shielded=True)])


def available() -> bool:
    """Whether this is a job of Slurm's."""
    return "SLURM_JOB_ID" in os.environ


def _kinds() -> list[str]:
    listed = subprocess.run(
        ["srun", "--mpi=list"],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
    )  # fmt: skip
    kinds = [line.split()[-1] for line in listed.stdout.splitlines() if line.split()]
    return [word for word in kinds if re.fullmatch(r"\w+", word) and word not in ("are", "none", "available")]


def _file(folder: Path, node: int) -> Path:
    return folder / f"launch-{node}.json"


def main(script: Sequence[str]) -> NoReturn:
    """What srun runs: become the worker, in its node's environment and folder."""
    file, until = _file(Path(os.environ[_FOLDER]), int(os.environ["SLURM_NODEID"])), time.monotonic() + PATIENCE
    while True:
        try:
            variables = read_json(file)
        except (OSError, RunDirError):
            variables = None
        if variables is not None:
            break
        if time.monotonic() > until:
            sys.exit(f"ERROR: the launcher of this node has not come in {PATIENCE:g} s")
        time.sleep(0.1)
    env = {name: str(value) for name, value in variables.items() if not _STEPS.match(name)}
    env.update({name: value for name, value in os.environ.items() if _STEPS.match(name)})
    for name in (_monitor.EXITS_VARIABLE,):
        if name in os.environ:
            env[name] = os.environ[name]
    os.chdir(variables["PWD"])
    os.execve(sys.executable, [sys.executable, "-m", f"{__package__}.wrap_rank", RANKS, "--", *script], env)


if __name__ == "__main__":
    main(sys.argv[1:])
