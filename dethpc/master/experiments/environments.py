"""The environment in which an experiment's jobs run: stored when it is created, the same for all its runs, deleted with it.

Its file is named by the experiment's uuid, which exists before its id and survives a rebuild. No row holds a variable.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Collection

from dethpc.config.experiment import ExperimentConfig
from dethpc.domain.environment import Environment
from dethpc.domain.facts import Experiment
from dethpc.errors import ContextError, Refused
from dethpc.master.submitting import job_environment as of_runs
from dethpc.rundir.files import replacement
from dethpc.rundir.home import Home


def sent(data: bytes | None) -> Environment | None:
    """What a client sent. Raises ContextError."""
    try:
        return None if data is None else Environment.from_bytes(data)
    except ValueError as error:
        raise ContextError(f"the environment that came with the request cannot be used: {error}") from None


def own() -> Environment:
    """The master's, with its interpreter first on PATH: for experiments of clients that send none, as the published one does."""
    variables = of_runs.of_master()
    environ = {os.fsencode(name): os.fsencode(value) for name, value in variables.items()}
    return Environment.of(environ, python=shutil.which("python3", path=variables["PATH"]) or "", source="master")


def keep(home: Home, queue_id: str, environment: Environment) -> None:
    """For the experiment with this uuid. It is whole on disk when this returns. Raises ContextError, OSError."""
    try:
        data = environment.to_bytes()
    except ValueError as error:
        raise ContextError(str(error)) from None
    path = home.environment(queue_id)
    path.parent.mkdir(mode=0o700, exist_ok=True)
    with replacement(path) as file:
        file.write(data)


def of_job(home: Home, queue_id: str) -> Environment | None:
    """None: it was created by a release that kept none, or it cannot be read."""
    with contextlib.suppress(OSError, ValueError):
        return of_runs.read(home.environment(queue_id))
    return None


def of_parent(home: Home, parent: Experiment) -> Environment | None:
    """That of a fork whose client sends none. Raises OSError; Refused where the parent's is lost."""
    keep_for_copy(home, parent)
    environment = of_job(home, parent.queue_id)
    if environment is None and ExperimentConfig.from_json(parent.config).keeps_environment:
        raise Refused(
            f"the environment of experiment {parent.id}, which its fork would get, is missing or damaged: put "
            f"{home.environment(parent.queue_id)} back from a backup, or create the experiment anew with det experiment create"
        )
    return environment


def keep_for_copy(home: Home, experiment: Experiment) -> None:
    """Give one that was imported the master's, once: no archive contains the environment of the shell that created it.

    Raises OSError."""
    records_one = ExperimentConfig.from_json(experiment.config).keeps_environment
    if experiment.imported_run and records_one and not home.environment(experiment.queue_id).exists():
        keep(home, experiment.queue_id, own())


def drop(home: Home, queue_id: str) -> None:
    with contextlib.suppress(OSError):
        home.environment(queue_id).unlink()


def sweep(home: Home, queue_ids: Collection[str]) -> None:
    """Remove what belongs to no experiment or task of ``queue_ids``: a master ended before it had written down what it was for."""
    with contextlib.suppress(OSError):
        for path in list(home.environments.iterdir()):
            if path.name not in queue_ids:
                path.unlink()
