"""The master: puts the rooms together and lets them run."""

from __future__ import annotations

import getpass
import logging
import os
import secrets
import signal
import socket
import threading
import time
import uuid
from collections.abc import Sequence
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any

import uvicorn

import dethpc
from dethpc.config.experiment import ExperimentConfig
from dethpc.config.loading import load as load_config
from dethpc.config.searcher import WarmStart
from dethpc.config.secrets import masked
from dethpc.config.site import SiteConfig
from dethpc.doctor.facts import sqlite_warning
from dethpc.doctor.read_login import filesystem
from dethpc.domain.entrypoint import batch_script
from dethpc.domain.facts import Attempt, Experiment, Row
from dethpc.domain.ids import AttemptId
from dethpc.domain.ports import NodeInfo, PoolInfo, Scheduler
from dethpc.domain.states import Intent, State
from dethpc.engine import events
from dethpc.engine.pools import Rules
from dethpc.engine.state import BadNodePolicy
from dethpc.engine.turns import order
from dethpc.errors import NotFound, Refused
from dethpc.master.durable import change_log, contexts
from dethpc.master.durable.change_log import ChangeLog
from dethpc.master.durable.harness import build as build_harness
from dethpc.master.durable.lease import Lease
from dethpc.master.durable.ledger import Ledger
from dethpc.master.durable.records import Records
from dethpc.master.experiments import standalone, user_script
from dethpc.master.experiments.checkpoints import Checkpoints
from dethpc.master.experiments.secrets import revealed_text
from dethpc.master.experiments.unmanaged import Unmanaged, config_of
from dethpc.master.http.app import create_app
from dethpc.master.http.auth import Auth
from dethpc.master.runs.admission import Admission
from dethpc.master.runs.cluster_view import ClusterView
from dethpc.master.runs.live import Cadence, LiveRuns, Pace
from dethpc.master.runs.prepare import JobBuilder
from dethpc.master.runs.reconcile import Reconciler
from dethpc.master.runs.reuse import ReusableJobs
from dethpc.master.runs.script import JobScript
from dethpc.master.runs.waiting import WaitExplainer
from dethpc.rundir.home import Home
from dethpc.rundir.journal import from_line
from dethpc.searcher.methods import build as build_searcher
from dethpc.state import open_store, queries

log = logging.getLogger(__name__)

LOG_BYTES, LOG_FILES = 10 << 20, 3
"""How long ``master.log`` grows before it becomes ``master.log.1``, and how many of those are kept."""


class Daemon:
    """One user's master on one cluster. Implements ``service.Master`` for the routes."""

    def __init__(self, home: Home, site: SiteConfig, scheduler: Scheduler, cluster_id: str, pace: Pace) -> None:
        self.paths, self.site, self.scheduler = home, site, scheduler
        self.home = home.root
        self.cluster_id, self.cluster_name = cluster_id, site.cluster_name
        self.version = dethpc.__version__
        self.started_at = time.time()
        self.url = ""
        self.log_path = home.log
        self.lease = Lease(home.master_file, cluster_id)
        self.lease.take()
        self.store = open_store(site.database or home.database_url)
        self.store.before_commit = self.lease.check
        self.owner = getpass.getuser()
        self.records = Records(self.store, home)
        self.auth = Auth(home.root, self.owner, self.store, self.records)
        self._changes = ChangeLog(home)
        self._changes.catch_up(self.store)
        rules = {name: Rules(pool.scheduler, pool.window) for name, pool in site.pools.items()}
        bad = site.bad_nodes
        bad_nodes = BadNodePolicy(bad.failures, bad.within_hours * 3600, bad.exclude_hours * 3600)
        self.ledger = Ledger(self.store, build_searcher, rules, bad_nodes, self.stop)
        self.ledger.listen(self._changes.append)
        self.cluster_view = ClusterView(scheduler)
        harness = build_harness(home.root)
        script = JobScript(site, harness, use_srun=scheduler.kind == "slurm")
        self._admission = Admission(site, self.cluster_view, script)
        self._builder = JobBuilder(
            home, site, self.ledger, self.store, self.cluster_view, self._admission, script, cluster_id, harness
        )
        self.unmanaged = Unmanaged(self.ledger, home, self.store)
        self.checkpoints = Checkpoints(self.ledger, self.store, home)
        self._stopped = threading.Event()
        cadence = Cadence(pace)
        self.waits = WaitExplainer(self.ledger, self._admission, self.cluster_view, cadence, home)
        runs = LiveRuns(self.ledger)
        runs.listen(self.waits.on_run_changed)
        reusable = {name: p.min_job_seconds for name, p in site.pools.items() if p.min_job_seconds is not None}
        self._reconciler = Reconciler(
            self.ledger,
            scheduler,
            home,
            self.lease,
            runs,
            cadence,
            self.cluster_view,
            self._builder.prepare,
            ReusableJobs(home, reusable),
            self.stop,
        )
        self._server: uvicorn.Server | None = None

    # --- life

    def serve(self, host: str, port: int) -> None:
        """Listen and work until a signal or ``stop``. ``port`` 0: any free one. Raises Refused when the port is taken."""
        try:
            listener = socket.create_server((host, port))
        except OSError as error:
            raise Refused(f"cannot listen on {host} port {port}: {error.strerror}") from error
        self.ledger.start()
        self.url = f"http://{_reachable(host)}:{listener.getsockname()[1]}"
        server_config = uvicorn.Config(create_app(self), log_config=None, access_log=False, lifespan="off")
        self._server = uvicorn.Server(server_config)
        self._reconciler.start()
        self.unmanaged.start()
        self.lease.publish(self.url)
        log.info("master of cluster %s listens at %s", self.cluster_id, self.url)
        try:
            if not self._stopped.is_set():
                self._server.run(sockets=[listener])
        finally:
            self._reconciler.stop()
            self.unmanaged.stop()
            self.ledger.stop()
            self.lease.release()
            self.store.close()
            log.info("master ended")

    def stop(self) -> None:
        """End soon; safe from any thread and from a signal handler."""
        self._stopped.set()
        if self._server is not None:
            self._server.should_exit = True

    # --- what the routes ask for

    def do(self, event: events.Event) -> list[Row]:
        """Like the ledger's, also for experiments and trials that ended before this master started."""
        experiment_id = getattr(event, "experiment_id", None)
        if experiment_id is not None and experiment_id not in self.ledger.state.experiments:
            with self.store.read() as connection:
                self.ledger.do(events.LoadExperiment(queries.experiment(connection, experiment_id)))
        if isinstance(event, events.KillTrial) and self.ledger.state.trial(event.trial_id) is None:
            with self.store.read() as connection:
                trial = queries.trial(connection, event.trial_id)
            raise Refused(f"trial {trial.id} has ended already ({trial.state.value})")
        return self.ledger.do(event)

    def queue_order(self, pool: str) -> list[str]:
        return self.ledger.look(lambda state: [job.id for job in order(state, pool, time.time())])

    def update_queue(self, changes: Sequence[events.QueueChange]) -> None:
        """Raises NotFound, Refused, ConfigError where a job's trials do not fit the pool that it shall move to."""
        for change in changes:
            known = self.ledger.state.experiments.get(change.experiment_id)
            if change.pool is not None and known is not None:
                self._admission.check(known.config.in_pool(change.pool))
        self.ledger.do(events.UpdateQueue(changes, time.time()))

    def create_experiment(
        self,
        owner: str,
        config_yaml: str,
        context_targz: bytes,
        activate: bool,
        parent_id: int | None = None,
        project_id: int | None = None,
        validate_only: bool = False,
        template: str | None = None,
    ) -> tuple[Experiment, list[str]]:
        """The experiment, and what its owner should know of it. Raises ConfigError with every mistake, ContextError, Refused."""
        if template:
            raise Refused("templates are not supported yet")
        config_yaml = revealed_text(config_yaml, self.store, self._defaults(), owner, parent_id)
        config, notes = self._load(config_yaml, context_targz, complete=not validate_only)
        if validate_only:
            return Experiment(
                0, owner, config.to_json(), config_yaml, State.PAUSED, time.time(), seed=0, queue_id=""
            ), notes
        seed = config.reproducibility.experiment_seed
        if seed is None:
            seed = secrets.randbelow(2**31)
            config = config.with_seed(seed)
        config = self._with_source(config)
        sha256 = contexts.keep(self.paths, context_targz)
        rows = self.ledger.do(
            events.CreateExperiment(
                owner=owner,
                config=config,
                original_config=config_yaml,
                context_sha256=sha256,
                seed=seed,
                queue_id=str(uuid.uuid4()),
                activate=activate,
                at=time.time(),
                parent_id=parent_id,
                project_id=project_id or 1,
            )
        )
        experiment = rows[0]
        assert isinstance(experiment, Experiment)
        return experiment, notes

    def create_unmanaged(self, owner: str, config_yaml: str, external_id: str | None = None) -> Experiment:
        """An experiment whose trials run elsewhere; the same ``external_id`` gives the same one. Raises ConfigError."""
        config_yaml = revealed_text(config_yaml, self.store, self._defaults(), owner, None)
        config = load_config(config_of(config_yaml), file="config", defaults=self._defaults()).config
        return self.unmanaged.experiment(owner, config_yaml, config, external_id)

    def _load(
        self, config_yaml: str, context_targz: bytes, *, complete: bool = True
    ) -> tuple[ExperimentConfig, list[str]]:
        """The configuration, and what is to be told about it. Not ``complete``: the context may be missing."""
        notes: list[str] = []
        config = load_config(config_yaml, file="config", defaults=self._defaults()).config
        script = batch_script(config.entrypoint)
        if script is not None and (complete or contexts.members(context_targz)):
            cpus = {name: pool.cpus_per_slot for name, pool in self.site.pools.items() if pool.cpus_per_slot}
            config, notes = user_script.fold(
                config_yaml, script, context_targz, self._defaults(), self._admission.pools(), cpus
            )
        self._admission.check(config)
        return config, notes

    def render(self, owner: str, config_yaml: str, context_targz: bytes) -> tuple[str, Path, list[str]]:
        """A run that needs no master: its script, its directory, notes. Raises ConfigError, ContextError."""
        config_yaml = revealed_text(config_yaml, self.store, self._defaults(), owner, None)
        config, notes = self._load(config_yaml, context_targz)
        run, trial, experiment = standalone.wanted(config, owner, time.time())
        experiment.context_sha256 = contexts.keep(self.paths, context_targz)
        job = self._builder.write(run, trial, experiment, config, secrets.token_urlsafe(32), self_requeue=True)
        return job.script.read_text(), job.run_dir, notes

    def import_run(self, run_dir: Path) -> Experiment:
        """An experiment from a run that ``render`` made. Raises Refused, RunDirError."""
        live = {job_id for job_id, record in self.scheduler.jobs().items() if record.state.live}
        entry, happened = standalone.history(run_dir, live)
        expected = self.paths.run(entry.run_id).path
        if run_dir.resolve() != expected.resolve():
            raise Refused(f"{run_dir} is not where this master keeps runs; expected {expected}")
        row = self.ledger.do(entry)[0]
        assert isinstance(row, Experiment)
        for event in happened:
            self.ledger.do(event)
        return self.ledger.state.experiments[row.id].row

    def _defaults(self) -> dict[str, Any]:
        """What the site gives to every experiment that does not say otherwise."""
        storage = self.site.checkpoint_storage or {
            "type": "shared_fs",
            "host_path": str(self.paths.checkpoints),
        }
        return {"checkpoint_storage": storage, "resources": {"resource_pool": self._admission.default_pool()}}

    def _with_source(self, config: ExperimentConfig) -> ExperimentConfig:
        """``source_trial_id`` means that trial's latest checkpoint at this moment."""
        source = config.searcher.source_trial_id if isinstance(config.searcher, WarmStart) else None
        if source is None:
            return config
        try:
            with self.store.read() as connection:
                trial = queries.trial(connection, source)
        except NotFound:
            raise NotFound(f"searcher.source_trial_id: no trial {source}") from None
        if trial.latest_checkpoint is None:
            raise Refused(f"searcher.source_trial_id: trial {source} has no checkpoint to start from")
        return config.with_source_checkpoint(trial.latest_checkpoint)

    def ring(self, attempt: AttemptId, lines: list[str]) -> tuple[int, str | None]:
        """Journal lines from a run: returns the last sequence number applied, and why the run should stop, if it should."""
        known = self.ledger.state.attempt(*attempt)
        if known is None or not lines:
            self._reconciler.wake()
        if known is None:
            return 0, self._stop_reason(attempt)
        applied = known.applied_seq
        if lines:
            reports = [from_line(line) for line in lines]
            rows = self.ledger.do(events.Reported(attempt.run, attempt.number, reports, time.time()))
            applied = max([applied, *(row.applied_seq for row in rows if isinstance(row, Attempt))])
            if applied < reports[-1].seq:
                self._reconciler.wake()  # a gap: the journal has what is missing
        return applied, self._stop_reason(attempt)

    def _stop_reason(self, attempt: AttemptId) -> str | None:
        run = self.ledger.state.runs.get(attempt.run)
        if run is None:
            return "the run is over"
        # A kill comes by the scheduler's signals and leaves no time for a checkpoint: nothing to tell.
        return run.intent_reason if run.intent is Intent.STOP else None

    def should_stop(self, attempt: AttemptId) -> bool:
        return self._stop_reason(attempt) is not None

    def pools(self) -> list[PoolInfo]:
        return self.cluster_view.pools()

    def nodes(self) -> list[NodeInfo]:
        return self.cluster_view.nodes()

    def context(self, experiment_id: int) -> bytes:
        with self.store.read() as connection:
            experiment = queries.experiment(connection, experiment_id)
        return self.paths.context(experiment.context_sha256).read_bytes()

    def config(self) -> dict[str, Any]:
        shown: dict[str, Any] = masked(
            {
                "cluster_name": self.cluster_name,
                "cluster_id": self.cluster_id,
                "home": str(self.home),
                "scheduler": self.scheduler.kind,
                **self._defaults(),
                "pools": {
                    name: pool.model_dump(mode="json", exclude_defaults=True) for name, pool in self.site.pools.items()
                },
            }
        )
        return shown


def _reachable(host: str) -> str:
    """The name under which other machines find a server that listens on ``host``."""
    if host not in ("0.0.0.0", "::", ""):  # noqa: S104
        return host
    name = socket.getfqdn()
    return socket.gethostname() if name.startswith("localhost") else name


def rebuild(root: Path, site_file: Path | None = None) -> int:
    """Make the database again from the shared file system; the old one is kept beside it. Returns the number of experiments.

    Raises LeaseHeld while a master runs.
    """
    from dethpc.master.site import cluster_id, site_of

    os.umask(0o077)
    home = Home(root)
    home.make()
    site = site_of(home, site_file)
    if site.database:
        raise Refused("the database is named in the site configuration; point it at an empty one and start the master")
    lease = Lease(home.master_file, cluster_id(home))
    lease.take()
    try:
        for path in home.root.glob(f"{home.database.name}*"):
            path.rename(path.with_name(f"{path.name}.{int(time.time())}.old"))
        store = open_store(home.database_url)
        try:
            return change_log.rebuild(home, store)
        finally:
            store.close()
    finally:
        lease.release()


def serve(root: Path, host: str | None, port: int, site_file: Path | None = None) -> None:
    """Be the master until a signal ends it. Raises LeaseHeld when there is one already."""
    from dethpc.master.site import cluster_id, find_scheduler, site_of

    os.umask(0o077)
    home = Home(root)
    home.make()
    logging.basicConfig(
        level=logging.INFO,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        handlers=[RotatingFileHandler(home.log, maxBytes=LOG_BYTES, backupCount=LOG_FILES, encoding="utf-8")],
    )
    for name in ("alembic", "uvicorn"):
        logging.getLogger(name).setLevel(logging.WARNING)
    site = site_of(home, site_file)
    if doubt := sqlite_warning(filesystem(home.root), str(home.root), site.database):
        log.warning("%s", doubt)
    scheduler, pace = find_scheduler(home, site)
    daemon = Daemon(home, site, scheduler, cluster_id(home), pace)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: daemon.stop())
    listen = host or site.master.host or ("127.0.0.1" if scheduler.kind == "local" else "0.0.0.0")  # noqa: S104
    daemon.serve(listen, port or site.master.port)
