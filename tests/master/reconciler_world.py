"""A reconciler over a real ledger, real run directories and a fake scheduler; the test plays the compute nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from dethpc.config.experiment import ExperimentConfig
from dethpc.config.site import SiteConfig
from dethpc.domain.facts import Attempt, Checkpoint, Row, Run, Trial
from dethpc.domain.ids import job_name
from dethpc.domain.ports import JobRecord, JobRequest, Scheduler
from dethpc.domain.reports import ReportKind
from dethpc.domain.states import End
from dethpc.engine import events
from dethpc.engine.queueing.pools import Rules
from dethpc.errors import SubmitRejected
from dethpc.master.durable.lease import Lease
from dethpc.master.durable.ledger import Ledger
from dethpc.master.installation import Installation
from dethpc.master.parts import Parts
from dethpc.master.scheduler_settings import SchedulerSettings
from dethpc.master.watching.cluster_view import ClusterView
from dethpc.master.watching.foreign_runs import ForeignRuns
from dethpc.master.watching.live_runs import Pace
from dethpc.master.watching.reconcile import Reconciler
from dethpc.master.watching.watch import Watch
from dethpc.master.watching.worker_reports import WorkerReports
from dethpc.rundir.claim import claim
from dethpc.rundir.files import read_json, write_json
from dethpc.rundir.home import Home
from dethpc.rundir.journal import JournalWriter
from dethpc.searcher.methods import build
from dethpc.state import open_store, queries
from tests.master.conftest import CONFIG, T0
from tests.master.fake_scheduler import FakeScheduler

CLUSTER = "0123456789"
NEVER = 3600.0


class World:
    """A reconciler and an experiment of ``trials`` trials. Each cycle asks the scheduler, unless ``pace`` says otherwise."""

    def __init__(self, folder: Path, trials: int = 3, scheduler: Scheduler | None = None, **pace: Any) -> None:
        self._open = ExitStack()
        self.home = Home(folder)
        self.home.make()
        self.fake = FakeScheduler()
        self.scheduler = scheduler or self.fake
        store = self.store = self._open.enter_context(open_store(self.home.database_url))
        self.ledger = Ledger(store, build, {"default": Rules(window=2 * trials)})
        self.ends: dict[tuple[str, int], End | None] = {}  # attempt -> how it ended
        self.ledger.listen(self._committed)
        self.ledger.start()
        self._open.callback(self.ledger.stop)
        self.create(1, trials)
        self.lease = Lease(self.home.master_file, CLUSTER)
        self.lease.take()
        usual = {"quiet": 0.0, "fastest_poll": 0.0, "slowest_poll": 0.0, "rest": 0.0, "submit_for": NEVER}
        self.pace = Pace(**{**usual, **pace})
        self.settings = self.before = SchedulerSettings("slurm", host="login1")
        self.prepared: list[str] = []
        self.needs: dict[str, str] = {}  # run id -> what it waits for
        self.refusals: dict[str, str] = {}  # run id -> why it can never be submitted
        self.reconciler = self.start()

    def create(self, number: int, trials: int, source: str | None = None, **resources: Any) -> None:
        """An experiment with so many trials, all at once, that begin at the checkpoint ``source``, if given."""
        searcher = {**CONFIG["searcher"], "max_trials": trials, "max_concurrent_trials": trials}
        if source is not None:
            searcher = {"name": "single", "metric": searcher["metric"], "source_checkpoint_uuid": source}
        given = {**CONFIG.get("resources", {}), **resources}
        config = ExperimentConfig.from_json({**CONFIG, "searcher": searcher, "resources": given})
        self.ledger.do(events.CreateExperiment("ada", config, "", "", 7, str(UUID(int=number)), True, T0))

    def start(self) -> Reconciler:
        """A reconciler that knows nothing but the rows, as after a start of the master."""
        installation = Installation(self.home, SiteConfig(), CLUSTER, "slurm")
        parts = Parts(installation, self.store, self.ledger, self.scheduler, self.lease, ClusterView(self.scheduler))
        watch = Watch.begin(parts, self.pace, ForeignRuns(self.scheduler, self.before, self.settings))
        self.holds, self.told = watch.holds, list[tuple[str, str]]()
        self.live, self.cadence = watch.runs, watch.cadence
        self.worker_reports = WorkerReports(parts)
        return Reconciler(parts, watch, self, self.worker_reports, self._refused, lambda: None)

    def _refused(self, run: Run, why: str) -> None:
        self.told.append((run.id, why))

    # --- the jobs of runs

    def missing(self, run: Run) -> str:
        return self.needs.get(run.id, "")

    def prepare(self, runs: Sequence[Run]) -> Callable[[Run], JobRequest]:
        return self._job

    def close(self) -> None:
        self._open.close()

    def _committed(self, rows: Sequence[Row]) -> None:
        self.ends.update({(row.run_id, row.number): row.end for row in rows if isinstance(row, Attempt)})

    def _job(self, run: Run) -> JobRequest:
        self.prepared.append(run.id)
        run_dir = self.home.run(run.id)
        run_dir.make()
        if run.id in self.refusals:
            raise SubmitRejected(self.refusals[run.id])
        trial = self.ledger.state.trial_of(run)
        assert trial is not None
        whose = {"cluster_id": CLUSTER, "run": run.id, "queue_id": self.ledger.state.tasks[run.task_id].queue_id}
        write_json(run_dir.spec, {**whose, "trial_id": trial.id, "trial_seed": trial.seed, "hparams": trial.hparams})
        name = job_name(CLUSTER, run.id, "digits, two")
        run_dir.script.write_text(f"#!/bin/bash\n#SBATCH --job-name={name}\nsleep 1000\n")
        return JobRequest(run.id, name, run_dir.script, run_dir.path, run.slots, nice=run.nice)

    # --- the master

    def cycle(self, times: int = 1) -> None:
        for _ in range(times):
            self.reconciler.cycle()

    def requests(self, times: int = 1) -> Mapping[str, int]:
        """What so many cycles ask of the scheduler."""
        before = self.fake.requests.copy()
        self.cycle(times)
        return dict(self.fake.requests - before)

    def run(self, id: str = "1.1.1") -> Run:
        """A run that has not ended."""
        return self.ledger.state.runs[id]

    def runs(self) -> list[Run]:
        return list(self.ledger.state.runs.values())

    def ended(self, id: str = "1.1.1") -> bool:
        return id not in self.ledger.state.runs

    def trial(self, id: int = 1) -> Trial:
        """As it was committed: what has ended is no longer in memory."""
        with self.store.read() as connection:
            return queries.trial(connection, id)

    def checkpoint(self, uuid: str) -> Checkpoint:
        with self.store.read() as connection:
            return queries.checkpoint(connection, uuid)

    def job(self, id: str = "1.1.1") -> JobRecord:
        """The one job of the run."""
        (record,) = self.fake.named(id)
        return record

    # --- the compute nodes

    def node_starts(self, id: str = "1.1.1", k: int = 0, *, job_id: str | None = None, **started: Any) -> None:
        job_id = job_id or self.job(id).job_id
        run_dir = self.home.run(id)
        assert claim(run_dir, job_id), "another job has the run"
        run_dir.attempt(k).make()
        write_json(run_dir.attempt(k).started, {"job_id": job_id, "nodes": ["node1"], "at": T0, **started})

    def node_reports(self, id: str = "1.1.1", k: int = 0, steps: int = 1) -> None:
        with JournalWriter(self.home.run(id).attempt(k).journal) as journal:
            metrics = {"loss": 1.0 / steps}
            journal.append("metrics", {"group": "validation", "steps_completed": steps, "metrics": metrics})

    def node_says(self, id: str, kind: str, **data: Any) -> str:
        """Write to the journal of the run's first attempt; the line, as it rings with it."""
        with JournalWriter(self.home.run(id).attempt(0).journal) as journal:
            return journal.append_line(ReportKind(kind), data)[1]

    def node_ends(self, id: str = "1.1.1", k: int = 0, **report: Any) -> None:
        write_json(self.home.run(id).attempt(k).end, {"finished": True, "exit_code": 0, **report})

    def stop_word(self, id: str = "1.1.1", k: int = 0) -> dict[str, Any] | None:
        return read_json(self.home.run(id).attempt(k).stop)


@pytest.fixture
def worlds(tmp_path: Path) -> Iterator[Callable[..., World]]:
    """Makes worlds, and takes them down after the test."""
    made: list[World] = []

    def world(**options: Any) -> World:
        made.append(World(tmp_path / f"world{len(made)}", **options))
        return made[-1]

    yield world
    for each in made:
        each.close()


@pytest.fixture
def world(worlds: Callable[..., World]) -> World:
    return worlds()
