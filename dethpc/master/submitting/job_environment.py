"""What a job is submitted with: the environment that its experiment was created in, or the master's own."""

from __future__ import annotations

import functools
import os
import sys
from pathlib import Path

from dethpc.config.experiment import ExperimentConfig
from dethpc.domain.environment import MOST_BYTES, Environment
from dethpc.domain.facts import Experiment
from dethpc.errors import SubmitDeferred
from dethpc.rundir.files import open_regular
from dethpc.rundir.home import Home

# Of the master's own environment nothing that names another job, another master or a secret goes along.
_NOT_FOR_JOBS = ("DET_", "DETHPC_", "SLURM_", "SLURMD_", "SBATCH_", "PMI", "OMPI_", "PRTE_", "PGPASSWORD")


def of_experiment(home: Home, experiment: Experiment, config: ExperimentConfig) -> Path | None:
    """The file of the environment that its jobs run in. None: it has none, of an earlier release or without a master.

    Raises SubmitDeferred where there is to be one that is missing or damaged: nothing is to train in another environment.
    """
    path = home.environment(experiment.queue_id)
    if not config.keeps_environment:
        return path if experiment.id and path.exists() else None
    try:
        about = path.stat()
        _check(path, (about.st_ino, about.st_mtime_ns, about.st_size))
    except (OSError, ValueError) as error:
        why = "is missing" if isinstance(error, FileNotFoundError) else f"cannot be read ({error})"
        raise SubmitDeferred(
            f"the environment of the shell that created experiment {experiment.id} {why}: put {path} back from a backup, or kill "
            "the experiment and create it again"
        ) from None
    return path


def read(path: Path) -> Environment:
    """Raises OSError; ValueError when the file is damaged."""
    with open_regular(path) as file:
        return Environment.from_bytes(file.read(MOST_BYTES + 1))


@functools.lru_cache(maxsize=64)
def _check(path: Path, version: tuple[int, ...]) -> None:
    """Once for each version of the file: many runs have the same."""
    read(path)


def bare() -> dict[str, str]:
    """What a job is submitted with whose script brings its environment: the account, and nothing of the master's shell."""
    account = {name: os.environ[name] for name in ("HOME", "LOGNAME", "SHELL", "USER") if name in os.environ}
    return account | {"PATH": "/usr/local/bin:/usr/bin:/bin"}


def of_master() -> dict[str, str]:
    """The complete environment of a submission: the master's own, without what belongs to it alone.

    The interpreter that runs the master stands first on PATH: ``python3`` in an entrypoint is the one that has the user's packages.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith(_NOT_FOR_JOBS)}
    environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), environment.get("PATH", os.defpath)])
    return environment
