"""What notebooks, TensorBoards and shells are launched with beside their configuration, and what starts them in their jobs."""

from __future__ import annotations

import os
import pwd
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy import Connection

from dethpc.config.experiment import ExperimentConfig
from dethpc.domain.attempts.service_state import ServiceState
from dethpc.domain.facts import Experiment, Task, Trial
from dethpc.domain.states import TaskKind
from dethpc.errors import Refused, RunDirError
from dethpc.rundir.home import Home
from dethpc.scheduler.slurm.script import templates
from dethpc.state import queries

MOST_TRIALS = 100
"""Trials that one TensorBoard shows, as in Determined: the best of an experiment that has more."""

_PAGE = {"port": 0, "kind": "socket", "own_prefix": True}
_BYTES = {"port": 0, "kind": "socket", "protocol": "tcp", "own_login": True}

# The entrypoint is put there when it is launched.
FIELDS: dict[TaskKind, dict[str, Any]] = {
    TaskKind.NOTEBOOK: {"services": [_PAGE], "defaults": {"entrypoint": "notebook"}},
    TaskKind.TENSORBOARD: {
        "services": [_PAGE],
        "defaults": {"entrypoint": "tensorboard", "idle_timeout": "30m", "resources": {"slots": 0}},
    },
    TaskKind.SHELL: {"services": [_BYTES], "defaults": {"entrypoint": "shell"}},
}
"""By kind: fields of ``NewTask``."""


def service_state(home: Home, task: Task, run_id: str, attempt: int) -> ServiceState | None:
    """What the attempt of a notebook, a TensorBoard or a shell reports of itself; None for tasks of other kinds."""
    if task.kind not in FIELDS:
        return None
    try:
        return home.run(run_id).attempt(attempt).service_state() or ServiceState()
    except (OSError, RunDirError):
        return ServiceState()


class ShellKeys(NamedTuple):
    """Made for one shell: the pair of its user, and that of the host, by which the user's client knows it."""

    private_key: str
    public_key: str
    host_key: str
    host_public_key: str

    @classmethod
    def generate(cls) -> ShellKeys:
        return cls(*_pair(), *_pair())


def _pair() -> tuple[str, str]:
    """As OpenSSH writes them."""
    # Imported here: it holds 7 MiB, which a master without shells and TLS does without.
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return private.decode(), public.decode()


def unix_user() -> dict[str, Any]:
    """As whom jobs run, in Determined's words."""
    uid, gid = os.geteuid(), os.getegid()
    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError:
        name = str(uid)
    return {"user": name, "uid": uid, "group": name, "gid": gid}


class TensorboardSources:
    """The event files of trials and experiments, in the cluster of this id."""

    def __init__(self, connection: Connection, cluster_id: str) -> None:
        self._connection, self._cluster_id = connection, cluster_id

    def of(self, experiment_ids: Sequence[int], trial_ids: Sequence[int]) -> list[dict[str, Any]]:
        """Each with name, storage and folder, as ``exec.tensorboard.Source`` has them. Raises NotFound, Refused."""
        if not experiment_ids and not trial_ids:
            raise Refused("a TensorBoard shows experiments or trials; name one")
        if len(trial_ids) > MOST_TRIALS:
            raise Refused(f"a TensorBoard shows {MOST_TRIALS} trials at most, and these are {len(trial_ids)}")
        trials = [queries.trial(self._connection, trial_id) for trial_id in dict.fromkeys(trial_ids)]
        ids = dict.fromkeys([*experiment_ids, *(trial.experiment_id for trial in trials)])
        experiments = {id: queries.experiment(self._connection, id) for id in ids}
        sources = [self._trial(experiments[trial.experiment_id], trial.id) for trial in trials]
        for experiment_id in dict.fromkeys(experiment_ids):
            sources += self._experiment(experiments[experiment_id])
        return sources

    def _experiment(self, experiment: Experiment) -> list[dict[str, Any]]:
        """Its folder, in which new trials appear; of many trials the best ones."""
        trials = queries.trials_of_experiment(self._connection, experiment.id)
        if len(trials) <= MOST_TRIALS:
            return [self._source(experiment, f"experiment-{experiment.id}", "")]
        sign = 1.0 if ExperimentConfig.from_json(experiment.config).searcher.smaller_is_better else -1.0

        def rank(trial: Trial) -> tuple[bool, float]:
            best = trial.best_validation
            return best is None, 0.0 if best is None else sign * best

        return [self._trial(experiment, trial.id) for trial in sorted(trials, key=rank)[:MOST_TRIALS]]

    def _trial(self, experiment: Experiment, trial_id: int) -> dict[str, Any]:
        return self._source(experiment, f"experiment-{experiment.id}/trial/{trial_id}", f"/trial/{trial_id}")

    def _source(self, experiment: Experiment, name: str, inner: str) -> dict[str, Any]:
        """Raises Refused."""
        section = ExperimentConfig.from_json(experiment.config).checkpoint_storage
        if section is None:
            raise Refused(f"experiment {experiment.id} has no checkpoint_storage, where TensorBoard files would be")
        from dethpc.tensorboard.build import get_experiment_sync_path  # it loads what trials are trained with

        folder = get_experiment_sync_path(self._cluster_id, str(experiment.id))
        return {"name": name, "storage": section.model_dump(mode="json"), "folder": f"{folder}{inner}"}


TEMPLATES = {  # in templates/tasks
    TaskKind.NOTEBOOK: "notebook.sh.j2",
    TaskKind.SHELL: "shell.sh.j2",
    TaskKind.TENSORBOARD: "tensorboard.sh.j2",
}


class StartOptions(NamedTuple):
    """``idle_timeout`` in seconds; None: it does not end by itself. ``arguments``: more of the program's own."""

    idle_timeout: float | None = None
    idle_type: str = ""
    work_dir: str = ""
    arguments: Sequence[str] = ()


def start_script(kind: TaskKind, options: StartOptions, site_templates: Path | None = None) -> list[str]:
    """The entrypoint of a task of this kind."""
    folders = () if site_templates is None else (site_templates,)
    text = templates(folders).get_template(TEMPLATES[kind]).render(options._asdict())
    return ["/bin/sh", "-c", text.strip()]
