"""Operations of owners on experiments and the queue, including experiments that have ended and are no longer in memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any
from uuid import uuid4

from dethpc.domain.environment import Environment
from dethpc.domain.facts import Experiment, Row
from dethpc.domain.records import ConfigPolicy
from dethpc.engine import events
from dethpc.engine.changes import ExperimentChanges
from dethpc.engine.queueing.dispatch_order import order
from dethpc.engine.queueing.jobs import ExperimentState
from dethpc.errors import NotFound
from dethpc.master.durable.ledger import Read
from dethpc.master.durable.records import RecordReader
from dethpc.master.experiments import environments, filing
from dethpc.master.experiments.checkpoint_uses import needed_elsewhere
from dethpc.master.experiments.config_policies import bounds_there, policies_of
from dethpc.master.parts import Parts
from dethpc.master.submitting.admission import Admission
from dethpc.state import queries

_OfEnded = events.OfExperiment | events.KillTrial | events.DescribeTrial | events.EarlyExit
_LEAVES_MEMORY = (events.OfExperiment, events.KillTrial, events.DescribeTrial, events.EarlyExit)


class Control:
    """Every method may be called from any thread, and raises NotFound, Refused, NotSupportedYet and ConfigError."""

    def __init__(self, parts: Parts, admission: Admission) -> None:
        self._ledger = parts.ledger
        self._store = parts.store
        self._home = parts.home
        self._admission = admission

    def do(self, event: events.Event) -> list[Row]:
        """Decide and commit; the rows that changed."""
        try:
            return self._ledger.do(event)
        except NotFound:
            if not isinstance(event, _LEAVES_MEMORY):
                raise
        return self._ledger.do_after(lambda: self._with_its_experiment(event))

    def do_planned(self, read: Read) -> None:
        """See ``Ledger.do_planned``."""
        self._ledger.do_planned(read)

    def move(self, experiment_id: int, project_id: int) -> None:
        """To a project; policies of another workspace may bind it there. Raises NotFound, Refused, also for a project that takes
        none when this is decided: it may be deleted meanwhile."""

        def checked() -> events.Event:
            records = RecordReader(self._store)
            project = filing.open_project(records, project_id)
            with self._store.read() as connection:
                experiment = queries.experiment(connection, experiment_id)
            bounds: dict[str, Any] = {}
            if filing.project(records, experiment.project_id).workspace_id != project.workspace_id:
                bounds = self.bounds_there(experiment, policies_of(records, project.workspace_id))
            changes = ExperimentChanges(project_id=project_id, **bounds)
            event = events.ChangeExperiment(experiment_id, changes, time.time())
            return event if experiment_id in self._ledger.state.experiments else self._with_its_experiment(event)

        self._ledger.do_after(checked)

    def bounds_there(self, experiment: Experiment, policies: Sequence[ConfigPolicy]) -> dict[str, Any]:
        """See ``config_policies.bounds_there``; without a priority where the queue of its pool has none."""
        bounds = bounds_there(experiment, policies)
        if self._ledger.state.rules_of(experiment.pool).kind != "priority":
            bounds.pop("priority", None)
        return bounds

    def delete(self, experiment_id: int) -> None:
        """Begin to: a task removes its files, but for the environment of its jobs, which holds secrets and goes at once."""
        with self._store.read() as connection:
            experiment = queries.experiment(connection, experiment_id)
            uuids = frozenset(
                checkpoint.uuid for checkpoint in queries.checkpoints_of_experiment(connection, experiment_id)
            )
            needed = needed_elsewhere(connection, self._home)
        pool = self._admission.pool_for_files(experiment.pool)
        self.do(events.Delete(experiment_id, str(uuid4()), time.time(), uuids, needed, pool))
        environments.drop(self._home, experiment.queue_id)

    def pool_for_files(self, pool: str) -> str:
        """Where a task runs that removes files of this pool's experiments. Never raises."""
        return self._admission.pool_for_files(pool)

    def environment(self, experiment: Experiment) -> Environment | None:
        """That of its jobs."""
        return environments.of_job(self._home, experiment.queue_id)

    def image(self, experiment: Experiment) -> str:
        """What its trials start from, "" where they start without a container."""
        return self._admission.image(experiment.pool, experiment.config)

    def set_labels(self, experiment_id: int, change: Callable[[list[str]], list[str]]) -> list[str]:
        """The labels that ``change`` makes of the present ones."""

        def read() -> events.Event:
            with self._store.read() as connection:
                row = queries.experiment(connection, experiment_id)
            changes = ExperimentChanges(labels=change(row.labels))
            return events.LoadExperiment(row, (), events.ChangeExperiment(experiment_id, changes, time.time()))

        rows = self._ledger.do_after(read)
        return next(row.labels for row in rows if isinstance(row, Experiment))

    def _with_its_experiment(self, event: _OfEnded) -> events.LoadExperiment:
        """The event with what it is about. Raises NotFound."""
        with self._store.read() as connection:
            if isinstance(event, events.OfExperiment):
                experiment, trials = queries.experiment(connection, event.experiment_id), []
                if isinstance(event, events.Delete):  # it stays in memory until its files are gone
                    trials = queries.trials_of_experiment(connection, experiment.id)
                return events.LoadExperiment(experiment, trials, event)
            experiment_id = queries.trial(connection, event.trial_id).experiment_id
            trials = queries.trials_of_experiment(connection, experiment_id)
            return events.LoadExperiment(queries.experiment(connection, experiment_id), trials, event)

    def allow_slots(self, most: int | None) -> None:
        """Raises Refused for a ``max_slots`` beyond what the site allows; None: without a limit."""
        self._admission.allow_slots(most)

    def queue_order(self, pool: str) -> list[str]:
        """Queue ids of the pool's jobs, the next one to be served first."""
        return self._ledger.look(lambda state: [job.id for job in order(state, pool, time.time())])

    def update_queue(self, changes: Sequence[events.QueueChange]) -> None:
        """Change jobs of the queue, all or none. Raises ConfigError where a job does not fit its new pool."""
        for change in changes:
            if change.pool is None:
                continue
            job = self._ledger.state.jobs.get(change.queue_id)
            if isinstance(job, ExperimentState):
                self._admission.check(job.config.in_pool(change.pool))
            else:
                self._admission.pool(change.pool)
        self._ledger.do(events.UpdateQueue(changes, time.time()))
