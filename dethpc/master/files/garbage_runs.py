"""The run of a task that removes an experiment's files, or files of checkpoints: what it is told to remove, and with which
configuration it runs."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import time
from dataclasses import asdict
from pathlib import Path

from dethpc import storage
from dethpc.config.experiment import ExperimentConfig
from dethpc.domain.facts import Checkpoint, Experiment, Task, Trial
from dethpc.domain.states import CheckpointState, State
from dethpc.domain.task_settings import TaskSettings
from dethpc.domain.trial_config import TrialConfig
from dethpc.engine.queueing.jobs import ExperimentState
from dethpc.errors import RunDirError
from dethpc.exec.garbage import Bring, Garbage, Part
from dethpc.master.durable import contexts, ids
from dethpc.master.experiments.claims import Claims
from dethpc.rundir.files import read_json, sealed, write_json
from dethpc.rundir.home import Home
from dethpc.rundir.layout import RunDir
from dethpc.state import queries
from dethpc.state.store import SqlStore
from dethpc.storage.base import is_name
from dethpc.storage.variables import of_stores

log = logging.getLogger(__name__)

_WHOSE = re.compile(r"-[Aq]|--(account|qos)\b")
"""Of an experiment's own sbatch options those that say on whose account it runs: the others may ask for what it does not need."""


LISTED = "garbage.json"
"""The file in the run's directory that says what is to go."""

MOST = 10_000
"""Checkpoints of which one job removes files, at most."""


OF_POOL = "of_pool"
"""In the configuration of a task that removes files of checkpoints: the pool of whose experiments, if not the task's own."""


def prepared(
    home: Home, store: SqlStore, cluster_id: str, experiment: ExperimentState, task: Task, file: Path
) -> ExperimentConfig:
    """Write what is to be removed into ``file``; the configuration of the job that does it. Raises OSError."""
    write_json(file, sealed(_listed(home, store, cluster_id, experiment, file).to_json()), durable=False)
    own = whose(experiment.config)
    return job(f"delete experiment {experiment.row.id}", file, task.pool, own)


def collected(home: Home, store: SqlStore, cluster_id: str, task: Task, file: Path) -> ExperimentConfig:
    """The same of a task that removes files of checkpoints: all that have come together for a pool by now."""
    pool = of_pool(task)
    with store.read() as connection:
        removals = queries.removals(connection, pool, MOST)
        origins = queries.checkpoint_origins(connection, removals)
        deletions = sorted(queries.ids_of_deletions(connection))
        spooled = queries.spooled(connection, names_of_spooled(home), pool)
        origins |= queries.checkpoint_origins(connection, spooled)
        ids = {checkpoint.experiment_id for checkpoint in (*removals, *spooled)}
        experiments = {id: queries.experiment(connection, id) for id in ids}
    claims = Claims(home, cluster_id)
    there = set(os.listdir(home.runs))
    parts: dict[str, Part] = {}
    bring: dict[str, Bring] = {}
    for checkpoint in spooled:
        if checkpoint.state is not CheckpointState.DELETED:
            # Training code may have chosen another storage, which it would write to itself.
            config = TrialConfig.from_json(origins[checkpoint.uuid].config)
            section, variables = checkpoint.storage or config.checkpoint_storage, of_stores(config.variables)
            alike = json.dumps([section, variables], sort_keys=True)
            bring.setdefault(alike, Bring(section, [], variables)).checkpoints.append(checkpoint.uuid)
    for checkpoint in removals:
        config = TrialConfig.from_json(origins[checkpoint.uuid].config)
        section, variables = config.checkpoint_storage, of_stores(config.variables)
        present = section.get("type") == "shared_fs"
        alike = json.dumps([section, variables], sort_keys=True)
        part = parts.setdefault(alike, Part(section, present, {}, variables))
        part.globs[checkpoint.uuid] = checkpoint.removing.splitlines()
    done = [home.run(run) for run in deletions if run in there]
    garbage = Garbage(
        parts=[asdict(part) for part in parts.values()],
        folders=[str(run.path) for run in done],
        spool=str(home.spool),
        bring=[asdict(part) for part in bring.values()],
        forget=[checkpoint.uuid for checkpoint in spooled if checkpoint.state is CheckpointState.DELETED],
        claims={row.uuid: list(claims.of(experiments[row.experiment_id], row)) for row in (*removals, *spooled)},
    )
    write_json(file, sealed(garbage.to_json()), durable=False)
    return job(task.name, file, task.pool, task.config.get("sbatch_args") or [])


def of_pool(task: Task) -> str:
    """The pool of the experiments whose files the task removes."""
    return str(task.config.get(OF_POOL, task.pool))


def names_of_spooled(home: Home) -> list[str]:
    """The checkpoints that wait in the spool. One that cannot be read keeps no other files from being removed."""
    try:
        return sorted(name for name in os.listdir(home.spool) if is_name(name))
    except FileNotFoundError:
        return []
    except OSError as error:
        log.warning("what waits in the spool cannot be brought to its storage: %s", error)
        return []


def whose(config: ExperimentConfig) -> list[str]:
    """The options of sbatch that say on whose account the experiment's jobs run."""
    return [option for option in config.slurm.sbatch_args or [] if _WHOSE.match(option)]


def job(
    name: str, file: Path, pool: str, sbatch_args: list[str], module: str = "dethpc.exec.garbage"
) -> ExperimentConfig:
    """Of a task that starts a module of ours, which reads ``file``."""
    return ExperimentConfig.from_json(
        {
            "name": name,
            "entrypoint": ["python3", "-m", module, str(file)],
            "searcher": {"name": "single", "metric": "none"},
            "resources": {"resource_pool": pool, "slots_per_trial": 0},
            "slurm": {"sbatch_args": sbatch_args},
            "environment": {"container_runtime": "none"},
        }
    )


def stand_ins(home: Home, task: Task, config: ExperimentConfig, context_sha256: str = "") -> tuple[Trial, Experiment]:
    """A trial and an experiment that are in no database, for a run that has neither. ``context_sha256``: "" for an empty one."""
    at = time.time()
    experiment = Experiment(
        0, task.owner, config.to_json(), "", State.ACTIVE, at, seed=0, queue_id=task.queue_id, name=config.name
    )
    experiment.context_sha256 = context_sha256 or empty_context(home)
    return Trial(0, 0, 0, {}, 0, State.ACTIVE, at), experiment


def _listed(home: Home, store: SqlStore, cluster_id: str, experiment: ExperimentState, file: Path) -> Garbage:
    row = experiment.row
    file.touch()
    unused_at = file.stat().st_mtime  # before anybody is asked: who wants the context from now on, touches it
    with store.read() as connection:
        runs = queries.ids_of_runs(connection, row.id)
        checkpoints = queries.checkpoints_of_experiment(connection, row.id)
        shared = queries.shares_context(connection, row)
        contexts_of_tasks = {TaskSettings.of(task).context_sha256 for task in queries.launched_tasks(connection)}
        deletions = queries.ids_of_deletions(connection)
    others = ids.rendered(os.listdir(home.runs))
    shared = shared or row.context_sha256 in {
        empty_context(home),
        *contexts_of_tasks,
        *map(context_of, map(home.run, others - deletions)),
    }
    from dethpc.tensorboard.build import get_experiment_sync_path  # it loads what trials are trained with

    section = experiment.config.storage_section
    here = [
        checkpoint
        for checkpoint in checkpoints
        if not storage.elsewhere(checkpoint.storage, section) and _may_have_files(row, checkpoint)
    ]
    claims = Claims(home, cluster_id)
    complete = any(checkpoint.state is CheckpointState.COMPLETED for checkpoint in here)
    own = {checkpoint.uuid for checkpoint in checkpoints}
    return Garbage(
        storage=section,
        environment=of_stores(TrialConfig.from_json(row.config).variables),
        present=complete and row.kind.submitted and section.get("type") == "shared_fs",
        checkpoints=[checkpoint.uuid for checkpoint in here],
        beside=str(get_experiment_sync_path(cluster_id, str(row.id))),
        folders=[
            *(str(home.run(run).path) for run in [*runs, *sorted(others & deletions)]),
            str(home.venv(row.id)),
            str(home.trials(row.id)),
        ],
        files=[str(home.search(row.id))],
        context="" if shared or not row.context_sha256 else str(home.context(row.context_sha256)),
        unused_at=unused_at,
        spool=str(home.spool),
        # Those, too, that wait for a storage which training code chose: nobody else could end their waiting any more.
        forget=[uuid for uuid in names_of_spooled(home) if uuid in own],
        claims={checkpoint.uuid: list(claims.of(row, checkpoint)) for checkpoint in checkpoints},
    )


def _may_have_files(experiment: Experiment, checkpoint: Checkpoint) -> bool:
    """Not what an archive had no files of: those stayed where they were, under that name."""
    copied = checkpoint.state is not CheckpointState.DELETED or bool(checkpoint.removing)
    return copied or not experiment.imported_run


def empty_context(home: Home) -> str:
    return contexts.keep(home, contexts.pack([]))


def context_of(run_dir: RunDir) -> str:
    """Of a run that was made without a master, and may wait for somebody to submit it."""
    with contextlib.suppress(OSError, RunDirError):
        return str((read_json(run_dir.spec) or {}).get("context_sha256"))
    return ""
