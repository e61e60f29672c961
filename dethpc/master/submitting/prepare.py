"""From a run that is wanted to a job that can be submitted: its directory, with its specification and its script."""

from __future__ import annotations

import contextlib
import itertools
import math
import re
import secrets
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dethpc import storage
from dethpc.config.experiment import ExperimentConfig
from dethpc.config.sections.environment import without_registry_auth
from dethpc.domain.attempts.log_policies import Noted
from dethpc.domain.facts import Checkpoint, Experiment, Run, Task, Trial
from dethpc.domain.ids import job_name, plain_title
from dethpc.domain.ports import HOUSEKEEPING, TASKS, TRIALS, JobRequest
from dethpc.domain.states import TaskKind
from dethpc.domain.task_settings import TaskSettings
from dethpc.engine import events, nodes
from dethpc.engine.checkpoints import usable
from dethpc.engine.search import NEW_WEIGHTS, copies_nothing
from dethpc.errors import ConfigError, RunDirError, SubmitRejected
from dethpc.master.durable import at_rest
from dethpc.master.files import garbage_runs
from dethpc.master.http.auth import mint_run_token
from dethpc.master.http.codes import digest
from dethpc.master.parts import Parts
from dethpc.master.submitting import job_environment, run_container
from dethpc.master.submitting.admission import Admission
from dethpc.master.submitting.image_pulls import ORDER, Images
from dethpc.master.submitting.script import JobDetails, JobScript
from dethpc.master.submitting.trial_shape import Shape, pool_of
from dethpc.master.watching import trouble
from dethpc.rundir.files import read_json, sealed, write_json
from dethpc.rundir.spec import TRIAL, Spec
from dethpc.scheduler.slurm import arrays
from dethpc.state import queries

MOST_CHECKPOINTS = 50
"""How many of a trial's checkpoints a run is told of: with so many missing its storage is."""

_NAMES_NODES = re.compile(r"(?:^|\s)(?:-[wxF]|--(?:nodelist|nodefile|exclude)\b)")


@dataclass(frozen=True, slots=True)
class Submission:
    """A run with what its directory is written from. ``config``: the experiment's, typed."""

    run: Run
    trial: Trial
    experiment: Experiment
    config: ExperimentConfig
    token: str
    self_requeue: bool = False
    """Its job queues itself again when it is stopped: no master does."""
    checkpoint: float = 0.0
    """Seconds that saving a checkpoint takes."""
    task: Task | None = None
    """A task that somebody launched; None: the run is a trial's, or a task's of the master's own."""

    @property
    def queue(self) -> str:
        """Where its job waits if it has no slots."""
        if self.task is not None:
            return TASKS
        return TRIALS if self.experiment.id else HOUSEKEEPING


class JobBuilder:
    """Knows the site. ``prepare`` may be called again for the same run: it writes the same directory."""

    def __init__(self, parts: Parts, harness: Path) -> None:
        self._home = parts.home
        self._site = parts.site
        self._ledger = parts.ledger
        self._store = parts.store
        self._view = parts.cluster
        self._cluster_id = parts.cluster_id
        self._harness = harness
        self._script = JobScript(parts.site, harness, use_srun=parts.scheduler.kind == "slurm")
        self.admission = Admission(parts.site, parts.cluster, self._script, parts.home.root)
        self.images = Images(parts, self.admission)
        self._environment = job_environment.of_master()  # of experiments that have none of their own

    def missing(self, run: Run) -> str:
        """What the run waits for before it can be prepared, in words; "" for nothing. Raises SubmitRejected, OSError."""
        return self.images.missing(run)

    # --- the run directory

    def prepare(self, runs: Sequence[Run]) -> Callable[[Run], JobRequest]:
        """What writes the directory of each of these runs and returns its job.

        All their tokens are committed together, before any directory is written. Raises StoreError; what is returned raises
        SubmitRejected and SubmitDeferred where there can be no job, never or not at present, SchedulerUnavailable, OSError.
        """
        tokens = {run.id: self._token(run) for run in runs}
        self._ledger.do_all([events.Prepared(id, digest(token), time.time()) for id, token in tokens.items()])
        costs = {id: self._checkpoint_cost(id) for id in {run.experiment_id for run in runs} if id is not None}

        def job(run: Run) -> JobRequest:
            try:
                return self._job(run, tokens[run.id], costs)
            except (ValueError, ConfigError) as error:
                raise SubmitRejected(str(error)) from error

        return job

    def _job(self, run: Run, token: str, costs: Mapping[int, float]) -> JobRequest:
        """Raises as ``write`` does."""
        state = self._ledger.state
        trial, task = state.trial_of(run), state.tasks[run.task_id]
        experiment = state.experiments.get(task.experiment_id or 0)
        if run.number > 1 and (trial is None or trial.lost):  # the run before it ended without training
            context = experiment.row.context_sha256 if trial is not None and experiment is not None else ""
            for warning in at_rest.check_inputs(self._home, self._harness, context):
                self._home.run(run.id).make()
                trouble.write(self._home, run.id, 0, warning, "WARNING")
        if trial is not None and run.number == 1 and copies_nothing(trial):
            self._home.run(run.id).make()
            trouble.write(self._home, run.id, 0, f"this trial {NEW_WEIGHTS}", "WARNING")
        if trial is not None and experiment is not None:
            cost = costs[experiment.row.id]
            return self.write(Submission(run, trial, experiment.row, experiment.config, token, checkpoint=cost))
        if task.kind is TaskKind.IMAGE_PULL:
            run_dir = self._home.run(run.id)
            run_dir.make()
            config = self.images.ordered(task, run_dir.path / ORDER)
            return self.write(Submission(run, *garbage_runs.stand_ins(self._home, task, config), config, token))
        if task.kind.launched:
            settings = TaskSettings.of(task)
            config = ExperimentConfig.from_json(settings.config)
            trial_row, experiment_row = garbage_runs.stand_ins(self._home, task, config, settings.context_sha256)
            trial_row.image = self.images.digest(config)
            return self.write(Submission(run, trial_row, experiment_row, config, token, task=task))
        if task.kind is not TaskKind.CHECKPOINT_GC or (experiment is None and task.experiment_id is not None):
            raise ValueError(f"tasks of kind {task.kind.value} cannot be run yet")
        run_dir = self._home.run(run.id)
        run_dir.make()
        file = run_dir.path / garbage_runs.LISTED
        if experiment is None:
            config = garbage_runs.collected(self._home, self._store, self._cluster_id, task, file)
        else:
            config = garbage_runs.prepared(self._home, self._store, self._cluster_id, experiment, task, file)
        return self.write(Submission(run, *garbage_runs.stand_ins(self._home, task, config), config, token))

    def _checkpoint_cost(self, experiment_id: int) -> float:
        with self._store.read() as connection:
            return checkpoint_cost(queries.checkpoint_seconds(connection, experiment_id))

    def _token(self, run: Run) -> str:
        return self._written(run, "token") or mint_run_token(run.id)[0]

    def _worker_secret(self, run: Run) -> str:
        return self._written(run, "worker_secret") or secrets.token_urlsafe(32)

    def _written(self, run: Run, name: str) -> str:
        """What its directory says already."""
        with contextlib.suppress(RunDirError):  # a damaged one is rewritten: no job has it yet
            return str((read_json(self._home.run(run.id).spec) or {}).get(name) or "")
        return ""

    def write(self, submission: Submission) -> JobRequest:
        """Write the run directory. Raises ValueError, ConfigError, SubmitDeferred, SubmitRejected, OSError."""
        run = submission.run
        config = submission.config
        run_dir = self._home.run(run.id)
        run_dir.make()
        shape = self.admission.shape(config)
        name = job_name(self._cluster_id, run.id, config.name)
        left_out = self._left_out(run.task_id, config, Noted.of(submission.trial.search).nodes)
        environment = job_environment.of_experiment(self._home, submission.experiment, config)
        comment = _comment(submission)
        pool = pool_of(self._site, config.resources.resource_pool)
        inside = run_container.of(pool, config, shape.slot_type, self.images.path(config, submission.trial))
        seen = self._seen(run_dir.path, submission) if inside else None
        details = JobDetails(
            left_out=left_out,
            comment=comment,
            environment=environment,
            nice=run.nice or None,
            self_requeue=submission.self_requeue,
            checkpoint=submission.checkpoint,
            wrapped=inside.wrap(config, shape, seen) if inside and seen else None,
        )
        script = self._script.text(run_dir.path, name, config, shape, details)
        spec = self._spec(submission, shape)
        if inside is not None:
            spec = spec._replace(container=inside.spec_section(config), det_prefix="", venv_at_need="")
        write_json(run_dir.spec, sealed(spec.to_json()), durable=False)
        run_dir.script.write_text(script)
        return JobRequest(
            run_id=run.id,
            name=name,
            script=run_dir.script,
            run_dir=run_dir.path,
            slots=run.slots,
            env=job_environment.bare() if environment else self._environment,
            nice=run.nice,
            queue=submission.queue,
            alike=arrays.alike(script, comment),
        )

    def _seen(self, run_dir: Path, submission: Submission) -> run_container.Seen:
        """What is seen inside of its container."""
        written = [run_dir]
        if own := self._trial_dir(submission):
            written.append(Path(own))
            written[-1].mkdir(mode=0o700, parents=True, exist_ok=True)
        if submission.config.environment.venv:
            written.append(self._venv(submission))
            written[-1].mkdir(mode=0o700, parents=True, exist_ok=True)
        section = submission.config.checkpoint_storage
        if section is not None and section.type not in ("shared_fs", "directory"):
            written.append(self._home.spool)
            written[-1].mkdir(mode=0o700, exist_ok=True)
        return run_container.Seen(run_dir, self._home.root, self._harness, written)

    def _spec(self, submission: Submission, shape: Shape) -> Spec:
        run = submission.run
        trial = submission.trial
        experiment = submission.experiment
        config = submission.config
        section = config.storage_section
        task = submission.task
        settings = TaskSettings.of(task) if task is not None else None
        return Spec(
            cluster_id=self._cluster_id,
            cluster_name=self._site.cluster_name,
            master_file=str(self._home.master_file),
            run=run.id,
            experiment_id=experiment.id,
            trial_id=trial.id,
            task_id=run.task_id,
            run_number=run.number,
            trial_seed=trial.seed,
            hparams=trial.hparams,
            config=without_registry_auth(experiment.config),
            entrypoint=config.entrypoint,
            context=str(self._home.context(experiment.context_sha256)),
            context_sha256=experiment.context_sha256,
            token=submission.token,
            worker_secret=self._worker_secret(run),
            slots=run.slots,
            num_nodes=0 if shape.open else shape.nodes,
            slots_per_node=shape.slots_per_node,
            slot_type=shape.slot_type,
            queue_id=experiment.queue_id,
            owned=bool(experiment.queue_id),
            latest_checkpoint=trial.latest_checkpoint or trial.source_checkpoint,
            steps_completed=trial.steps_completed if trial.latest_checkpoint else 0,
            checkpoints=self._checkpoints(trial, section),
            source_checkpoint=trial.source_checkpoint,
            restarts=trial.restarts,
            owner=experiment.owner,
            environment=config.environment.variables(shape.slot_type),
            harness=str(self._harness),
            checkpoint_storage=section,
            search=trial.search,
            venv=str(self._venv(submission)) if config.environment.venv else "",
            venv_at_need="" if config.environment.venv else str(self._venv(submission)),
            det_prefix=sys.prefix,
            trial_dir=self._trial_dir(submission),
            storage_worked=submission.checkpoint > 0,
            services=[
                *(port.service() for port in config.environment.proxy_ports),
                *(settings.services if settings else ()),
            ],
            kind=task.kind.value.lower() if task is not None else TRIAL,
            work_dir=str((settings.options.get("work_dir") if settings else None) or ""),
            details=settings.details if settings else {},
        )

    def _trial_dir(self, submission: Submission) -> str:
        """What stays over its attempts: a trial's, or a notebook's."""
        if submission.task is not None and submission.task.kind is TaskKind.NOTEBOOK:
            return str(self._home.task(submission.task.id))
        experiment_id = submission.experiment.id
        return str(self._home.trials(experiment_id) / str(submission.trial.id)) if experiment_id else ""

    def _venv(self, submission: Submission) -> Path:
        """The experiment's; of a run that belongs to none, its own."""
        experiment_id = submission.experiment.id
        return self._home.venv(experiment_id) if experiment_id else self._home.run(submission.run.id).path / "venv"

    def _checkpoints(self, trial: Trial, section: dict[str, Any]) -> list[dict[str, Any]]:
        """What the trial can go on from, latest first, should the latest be missing. ``section``: its checkpoint storage."""
        checkpoints = list(self._ledger.state.checkpoints.get(trial.id, {}).values())
        latest_first = usable(self._ledger.state, trial, checkpoints)
        from_latest = itertools.dropwhile(lambda checkpoint: checkpoint.uuid != trial.latest_checkpoint, latest_first)
        return [
            {"uuid": c.uuid, "steps_completed": c.steps_completed}
            | ({"storage": c.storage} if c.storage and c.storage != section and not _reads(section, c) else {})
            for c in itertools.islice(from_latest, MOST_CHECKPOINTS)
        ]

    def _left_out(self, task_id: str, config: ExperimentConfig, refused: Sequence[str] = ()) -> list[str]:
        """Nodes that the task's next run is not to be sent to. A job that names nodes itself gets what it names.

        ``refused``: those that log policies of its trial exclude. Raises SubmitRejected when they leave too few.
        """
        pool = config.resources.resource_pool
        options = [*pool_of(self._site, pool).sbatch_args, *(config.slurm.sbatch_args or [])]
        if any(_NAMES_NODES.search(option) for option in options):
            return []
        off = nodes.avoided(self._ledger.state, task_id, time.time())
        if not off and not refused:
            return []
        members, request = self._view.pool(pool).nodes, self.admission.request(config)
        if refused and nodes.too_few_left(members, request, refused):
            raise SubmitRejected(
                f"its log policies exclude {', '.join(refused)}, and pool {pool} has too few other nodes for {request}"
            )
        return nodes.left_out(off, members, request, refused)


def _reads(section: dict[str, Any], checkpoint: Checkpoint) -> bool:
    """Whether the storage looks for the checkpoint itself where that was stored before it."""
    return bool(section.get("read_from")) and not storage.elsewhere(checkpoint.storage, section)


def checkpoint_cost(seconds: Sequence[float]) -> float:
    """What saving a checkpoint may take, in seconds: the 95th percentile of what it took; 0 before anything was measured."""
    ordered = sorted(seconds)
    return ordered[math.ceil(0.95 * len(ordered)) - 1] if ordered else 0.0


def _comment(submission: Submission) -> str:
    """What squeue and sacct show a person, or a script of the site, of whose the job is."""
    title = plain_title(submission.config.name)
    number = submission.experiment.id
    owner = f"experiment {number} {title}".rstrip() + f", trial {submission.trial.id}" if number else title
    return ", ".join(part for part in (owner, f"run {submission.run.id} of dethpc") if part)
