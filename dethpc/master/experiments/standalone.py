"""Runs without a master: a script to submit by hand, and the import of its journal afterwards."""

from __future__ import annotations

import secrets
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import yaml

from dethpc.config.experiment import ExperimentConfig
from dethpc.config.sections.searcher import WarmStart
from dethpc.domain.facts import Experiment, Run, Trial
from dethpc.domain.ids import run_id
from dethpc.domain.states import RunState, State
from dethpc.engine import events
from dethpc.errors import Refused
from dethpc.rundir.claim import claimed_by
from dethpc.rundir.files import read_json
from dethpc.rundir.journal import A_LOOK, RemainsReader
from dethpc.rundir.layout import RunDir
from dethpc.rundir.spec import Spec
from dethpc.rundir.started import Started


def new_run(config: ExperimentConfig, owner: str, at: float) -> tuple[Run, Trial, Experiment]:
    """A run that belongs to no experiment yet, with a trial and an experiment that are in no database.

    The trial has the first hyperparameters that the config's searcher would try.
    """
    from dethpc.searcher.base import Create
    from dethpc.searcher.methods import build

    seed = config.reproducibility.experiment_seed
    if seed is None:
        seed = secrets.randbelow(2**31)
    actions = build(config.searcher, config.space, seed).start()
    first = next((action for action in actions if isinstance(action, Create)), None)
    if first is None:
        raise Refused(f"searcher.name: {config.searcher.name} cannot create a trial without a master")
    slots = config.resources.slots_per_trial
    task = uuid.uuid4().hex  # so that no master has to be asked
    run = Run(run_id(task, 1), None, task, 1, RunState.SUBMITTING, at, slots, "")
    source = config.searcher.source_checkpoint_uuid if isinstance(config.searcher, WarmStart) else None
    trial = Trial(0, 0, 0, first.hparams, seed, State.ACTIVE, at, search=first.search, source_checkpoint=source)
    effective = config.to_json()
    original, queue_id = (
        yaml.safe_dump(effective),
        str(uuid.uuid4()),
    )  # its checkpoints name the experiment that it becomes
    experiment = Experiment(0, owner, effective, original, State.ACTIVE, at, seed, queue_id=queue_id)
    return run, trial, experiment


def history(path: Path, live_jobs: set[str]) -> tuple[events.ImportRun, list[events.Event]]:
    """What happened in a run directory, as events. Raises Refused while its job is alive, RunDirError."""
    run_dir = RunDir(path)
    document = read_json(run_dir.spec)
    if document is None:
        raise Refused(f"{path} is not a run directory: it has no spec.json")
    spec = Spec.from_json(document)
    if spec.experiment_id:
        raise Refused(f"{path} belongs to experiment {spec.experiment_id}; it is not a standalone run")
    job_id = claimed_by(run_dir)
    if job_id is None:
        raise Refused(f"{path}: the run has not started yet; submit its script with sbatch")
    if job_id in live_jobs:
        raise Refused(f"{path}: the run is still running as job {job_id}; import it when it has ended")
    first = run_dir.attempt(0).start_report() or Started()
    entry = events.ImportRun(
        run_id=spec.run,
        job_id=job_id,
        owner=spec.owner,
        config=ExperimentConfig.from_json(spec.config),
        original_config=yaml.safe_dump(spec.config),
        context_sha256=spec.context_sha256,
        queue_id=spec.queue_id or str(uuid.uuid4()),
        hparams=spec.hparams,
        search=dict(spec.search),
        seed=spec.trial_seed,
        at=first.at or time.time(),
    )
    return entry, list(_attempts(run_dir, spec.run))


def _attempts(run_dir: RunDir, run_id: str) -> Iterator[events.Event]:
    attempts = run_dir.attempts()
    for k in attempts:
        attempt = run_dir.attempt(k)
        started = attempt.start_report() or Started()
        at = started.at or 0.0
        yield events.AttemptStarted(
            run_id=run_id,
            attempt=k,
            nodes=started.nodes,
            resumed_from=started.resumed_from,
            resumed_steps=started.resumed_steps,
            at=at,
        )
        remains = RemainsReader(attempt.journal)
        while not remains.whole:
            reports = remains.read(A_LOOK)
            yield events.Reported(run_id, k, reports, at, remains.offset, remains=True)
        report = attempt.end_report()
        ended = at if report is None else report.at or at
        yield events.AttemptEnded(run_id, k, report, None, ended, requeued=k != attempts[-1], missing=remains.missing)
