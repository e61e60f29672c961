"""The run of a task that removes an experiment's files: what it is told to remove, and with which configuration it runs."""

from __future__ import annotations

import contextlib
import os
import re
import time
from pathlib import Path

from dethpc import storage
from dethpc.config.experiment import ExperimentConfig
from dethpc.domain.facts import Experiment, Task, Trial
from dethpc.domain.states import CheckpointState, State
from dethpc.engine.jobs import ExperimentState
from dethpc.errors import RunDirError
from dethpc.exec.garbage import Garbage
from dethpc.master.durable import contexts
from dethpc.master.durable.ids import RUN_OF_A_TRIAL
from dethpc.rundir.files import read_json, sealed, write_json
from dethpc.rundir.home import Home
from dethpc.rundir.layout import RunDir
from dethpc.state import queries
from dethpc.state.store import SqlStore
from dethpc.tensorboard.build import get_experiment_sync_path

_WHOSE = re.compile(r"-[Aq]|--(account|qos)\b")
"""Of an experiment's own sbatch options those that say on whose account it runs: the others may ask for what it does not need."""


def prepared(home: Home, store: SqlStore, cluster_id: str, experiment: ExperimentState, file: Path) -> ExperimentConfig:
    """Write what is to be removed into ``file``; the configuration of the job that does it. Raises OSError."""
    write_json(file, sealed(_listed(home, store, cluster_id, experiment, file).to_json()), durable=False)
    own = experiment.config.slurm.sbatch_args or []
    return ExperimentConfig.from_json(
        {
            "name": f"delete experiment {experiment.row.id}",
            "entrypoint": ["python3", "-m", "dethpc.exec.garbage", str(file)],
            "searcher": {"name": "single", "metric": "none"},
            "resources": {"resource_pool": experiment.row.pool, "slots_per_trial": 0},
            "slurm": {"sbatch_args": [option for option in own if _WHOSE.match(option)]},
        }
    )


def stand_ins(home: Home, task: Task, config: ExperimentConfig) -> tuple[Trial, Experiment]:
    """A trial and an experiment that are in no database, for a run that has neither."""
    at = time.time()
    experiment = Experiment(
        0, task.owner, config.to_json(), "", State.ACTIVE, at, seed=0, queue_id=task.queue_id, name=config.name
    )
    experiment.context_sha256 = _empty_context(home)
    return Trial(0, 0, 0, {}, 0, State.ACTIVE, at), experiment


def _listed(home: Home, store: SqlStore, cluster_id: str, experiment: ExperimentState, file: Path) -> Garbage:
    row = experiment.row
    file.touch()
    unused_at = file.stat().st_mtime  # before anybody is asked: who wants the context from now on, touches it
    with store.read() as connection:
        runs = queries.ids_of_runs(connection, row.id)
        found = queries.checkpoints_of_experiment(connection, row.id)
        shared = queries.shares_context(connection, row)
        deletions = queries.ids_of_deletions(connection)
    others = {name for name in os.listdir(home.runs) if not RUN_OF_A_TRIAL.fullmatch(name)}
    shared = shared or row.context_sha256 in {
        _empty_context(home),
        *map(_context_of, map(home.run, others - deletions)),
    }
    wanted = experiment.config.checkpoint_storage
    section = wanted.model_dump(mode="json") if wanted else {}
    here = [checkpoint for checkpoint in found if not storage.elsewhere(checkpoint.storage, section)]
    complete = any(checkpoint.state is CheckpointState.COMPLETED for checkpoint in here)
    return Garbage(
        storage=section,
        present=complete and row.kind.submitted and section.get("type") == "shared_fs",
        checkpoints=[checkpoint.uuid for checkpoint in here],
        beside=str(get_experiment_sync_path(cluster_id, str(row.id))),
        folders=[*(str(home.run(run).path) for run in [*runs, *sorted(others & deletions)]), str(home.venv(row.id))],
        context="" if shared or not row.context_sha256 else str(home.context(row.context_sha256)),
        unused_at=unused_at,
    )


def _empty_context(home: Home) -> str:
    return contexts.keep(home, contexts.pack([]))


def _context_of(run_dir: RunDir) -> str:
    """Of a run that was made without a master, and may wait for somebody to submit it."""
    with contextlib.suppress(OSError, RunDirError):
        return str((read_json(run_dir.spec) or {}).get("context_sha256"))
    return ""
