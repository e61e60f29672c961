"""What the engine keeps in memory: a fold of rows, and indexes over it.

``apply`` is the only thing that alters it, and makes no choices. Rows are values: a row that is held is never altered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from dethpc.config.experiment import ExperimentConfig
from dethpc.config.sections.hyperparameters import Space
from dethpc.config.sections.searcher import Method
from dethpc.domain.facts import (
    Attempt,
    Checkpoint,
    Experiment,
    Metric,
    NodeHealth,
    PoolState,
    Row,
    Run,
    SearchNote,
    Task,
    Trial,
)
from dethpc.domain.ids import task_id
from dethpc.domain.states import RunState, State, TaskKind
from dethpc.engine.queueing.jobs import ExperimentState, Job, TaskState, exit_of
from dethpc.engine.queueing.live_runs import LiveRuns
from dethpc.engine.queueing.pools import Rules
from dethpc.engine.queueing.queue_index import QueueIndex
from dethpc.errors import ConfigError, NotFound, StoreError
from dethpc.searcher.base import Searcher


@dataclass(frozen=True, slots=True)
class BadNodePolicy:
    """When a node is left out: after so many failures of at least two trials within so long, for so long. Times in seconds."""

    failures: int = 3  # 0: never
    within: float = 86400.0
    exclude: float = 86400.0


BuildSearcher = Callable[[Method, Space, int], Searcher]


@dataclass(slots=True)
class ClusterState:
    """All experiments and tasks. What a row changes in memory is decided here; jobs and ``live`` keep what is counted of runs.

    ``next_trial_id`` and ``next_experiment_id`` are the ids that the next rows will get."""

    build_searcher: BuildSearcher
    rules: Mapping[str, Rules] = field(default_factory=dict)  # by pool; the default ones for a pool that is not here
    experiments: dict[int, ExperimentState] = field(default_factory=dict)
    jobs: dict[str, Job] = field(default_factory=dict)  # by queue id
    trials: dict[int, Trial] = field(default_factory=dict)  # by id, of all experiments
    tasks: dict[str, Task] = field(default_factory=dict)  # those that have not ended, or of which a run has not
    runs: dict[str, Run] = field(default_factory=dict)  # live ones
    pools: dict[str, PoolState] = field(default_factory=dict)  # what was last seen of them
    places: QueueIndex = field(default_factory=QueueIndex)  # jobs that want another run
    live: LiveRuns = field(default_factory=LiveRuns)  # the runs by pool
    attempts: dict[str, list[Attempt]] = field(default_factory=dict)  # task id -> of open tasks, oldest first
    checkpoints: dict[int, dict[str, Checkpoint]] = field(default_factory=dict)  # trial id -> by uuid, of open trials
    resting: dict[int, float] = field(default_factory=dict)  # trial id -> until when, of open trials that have failed
    nodes: dict[str, NodeHealth] = field(default_factory=dict)  # those that something is, or was, held against
    bad_nodes: BadNodePolicy = BadNodePolicy()
    ended: set[int] = field(default_factory=set)  # experiments about which nothing is to be decided any more
    next_experiment_id: int = 1
    next_trial_id: int = 1

    def experiment(self, experiment_id: int) -> ExperimentState:
        """Raises: NotFound."""
        try:
            return self.experiments[experiment_id]
        except KeyError:
            raise NotFound(f"experiment {experiment_id} not found") from None

    def trial(self, trial_id: int) -> Trial | None:
        return self.trials.get(trial_id)

    def trial_of(self, run: Run) -> Trial | None:
        """Of a live run; None: its task has none."""
        trial_id = self.tasks[run.task_id].trial_id
        return None if trial_id is None else self.trial(trial_id)

    def submits(self, run: Run) -> bool:
        """Whether the run, which has not ended, is the scheduler's: the master submits it."""
        task = self.tasks.get(run.task_id)
        return task is not None and task.kind.submitted

    def job_of(self, run: Run) -> Job:
        """The job of a live run."""
        return self.jobs[self.tasks[run.task_id].queue_id]

    def member_of(self, run: Run) -> int:
        """Whose the live run is within its job."""
        return self._member(self.tasks[run.task_id])

    def _member(self, task: Task) -> int:
        return 0 if task.trial_id is None else self.trials[task.trial_id].index

    def attempt(self, run_id: str, number: int) -> Attempt | None:
        run = self.runs.get(run_id)
        if run is None:
            return None
        for attempt in reversed(self.attempts.get(run.task_id, ())):
            if attempt.run_id == run_id and attempt.number == number:
                return attempt
        return None

    def rules_of(self, pool: str) -> Rules:
        return self.rules.get(pool) or Rules()

    def active(self) -> Iterator[ExperimentState]:
        return (e for e in self.experiments.values() if not e.row.state.terminal)

    def apply(self, row: Row) -> None:
        """Put ``row`` in its place."""
        _PLACES[type(row)](self, row)

    def _apply_checkpoint(self, row: Checkpoint) -> None:
        if self._is_open(row.trial_id):
            self.checkpoints.setdefault(row.trial_id, {})[row.uuid] = row

    def _apply_pool(self, row: PoolState) -> None:
        self.pools[row.name] = row
        self.live.seen(row)

    def _apply_node(self, row: NodeHealth) -> None:
        self.nodes[row.name] = row

    def _apply_note(self, row: SearchNote) -> None:
        experiment = self.experiments[row.experiment_id]
        experiment.notes = max(experiment.notes, row.seq)
        experiment.searcher.noted(row.trial_index, row.kind, row.data)

    def _apply_experiment(self, row: Experiment) -> None:
        existing = self.experiments.get(row.id)
        if row.state is State.DELETED:
            if existing is not None:
                self._forget(existing)
        elif existing is not None:
            if row.config is not existing.row.config:
                existing.config = _config_of(row)
            existing.row = row
            self._index_place(existing)
        else:
            config = _config_of(row)
            searcher = self.build_searcher(config.searcher, config.space, row.seed)
            experiment = ExperimentState(row, config, searcher)
            self.experiments[row.id] = self.jobs[experiment.id] = experiment
            self._index_place(experiment)
        self.next_experiment_id = max(self.next_experiment_id, row.id + 1)

    def _apply_trial(self, row: Trial) -> None:
        experiment = self.experiments[row.experiment_id]
        open_before, held_before = len(experiment.open), experiment.held
        self.trials[row.id] = row
        if row.index == len(experiment.trials):
            experiment.trials.append(row)
            experiment.open.add(row.index)
            self.next_trial_id = max(self.next_trial_id, row.id + 1)
            experiment.searcher.created(row.index, row.hparams, row.search)
        else:
            experiment.trials[row.index] = row
            if not row.state.terminal and row.index not in experiment.open:  # it goes on after its end
                experiment.open.add(row.index)
                self._search_anew(experiment)
        if row.state.terminal and row.index in experiment.open:
            experiment.open.discard(row.index)
            experiment.searcher.closed(row.index, exit_of(row), row.best_validation)
            self.checkpoints.pop(row.id, None)
        elif not row.state.terminal:
            experiment.searcher.advanced(row.index, row.progress)
        if row.not_before is None or row.state.terminal:
            self.resting.pop(row.id, None)
        else:
            self.resting[row.id] = row.not_before
        moved = len(experiment.open) != open_before or experiment.held != held_before
        if experiment.wait(row.index) or moved:
            self._index_place(experiment)  # most rows of a trial, its reports, change nothing about the queue

    def _search_anew(self, experiment: ExperimentState) -> None:
        """The searcher as a fold makes it: none can forget that a trial ended. Only those go on that keep no notes."""
        config = experiment.config
        searcher = experiment.searcher = self.build_searcher(config.searcher, config.space, experiment.row.seed)
        for trial in experiment.trials:
            searcher.created(trial.index, trial.hparams, trial.search)
            searcher.advanced(trial.index, trial.progress)
        for trial in experiment.trials:
            if trial.index not in experiment.open:
                searcher.closed(trial.index, exit_of(trial), trial.best_validation)

    def _apply_task(self, row: Task) -> None:
        self.tasks[row.id] = row
        if row.trial_id is None:
            task = self.jobs.get(row.queue_id)
            if isinstance(task, TaskState):
                task.row = row
            else:
                task = self.jobs[row.queue_id] = TaskState(row)
            task.wait(0)
            self._index_place(task)
        if row.state.terminal:
            self._drop_if_over(row)

    def _drop_if_over(self, task: Task) -> None:
        """Nothing is decided any more about a task that has ended, once all its runs have."""
        self.attempts.pop(task.id, None)
        if self._member(task) in self.jobs[task.queue_id].live:
            return
        del self.tasks[task.id]
        if task.trial_id is None:
            self.places.move(self.jobs[task.queue_id].place, None)
            del self.jobs[task.queue_id]

    def _apply_run(self, row: Run) -> None:
        task = self.tasks.get(row.task_id)
        if task is None:
            return
        job, member = self.jobs[task.queue_id], self._member(task)
        self.live.put(job, self.runs.get(row.id), row, self.pools.get(row.pool))
        if row.state is RunState.ENDED:
            self.runs.pop(row.id, None)
            live = job.live.get(member)
            if live is not None and live.id == row.id:
                del job.live[member]
        else:
            self.runs[row.id] = row
            job.live[member] = row
        job.wait(member)
        self._index_place(job)
        if task.state.terminal:
            self._drop_if_over(task)

    def _apply_attempt(self, row: Attempt) -> None:
        task = self.tasks.get(row.task_id)
        if task is None:
            return
        if task.experiment_id is not None and row.applied_seq:
            self.experiments[task.experiment_id].good_nodes.update(row.nodes)
        if task.state.terminal:
            return
        attempts = self.attempts.get(row.task_id)
        if attempts is None:
            self.attempts[row.task_id] = [row]  # most tasks have no other: append would take room for four
            return
        for i in range(len(attempts) - 1, -1, -1):
            if attempts[i].run_id == row.run_id and attempts[i].number == row.number:
                attempts[i] = row
                return
        attempts.append(row)

    def _index_place(self, job: Job) -> None:
        place = job.next_place(self.rules_of(job.entry.pool).kind) if job.waiting else None
        if place is not job.place and place != job.place:
            self.places.move(job.place, place)
            job.place = place
        if isinstance(job, ExperimentState):
            over = job.row.state.terminal and not job.live and not job.open
            (self.ended.add if over else self.ended.discard)(job.row.id)

    def _is_open(self, trial_id: int) -> bool:
        trial = self.trial(trial_id)
        return trial is not None and not trial.state.terminal

    def evict_ended(self) -> None:
        """Forget experiments that have ended with all their runs. ``LoadExperiment`` brings one back where an event needs it.

        Unmanaged ones stay: a script may start their trials again at any time.
        """
        for id in [id for id in self.ended if self.experiments[id].row.kind is not TaskKind.UNMANAGED_TRIAL]:
            self._forget(self.experiments[id])

    def _forget(self, experiment: ExperimentState) -> None:
        for trial in experiment.trials:
            self.trials.pop(trial.id, None)
            self.checkpoints.pop(trial.id, None)
            self.resting.pop(trial.id, None)
            task = task_id(trial.experiment_id, trial.id)
            self.tasks.pop(task, None)
            self.attempts.pop(task, None)
        self.places.move(experiment.place, None)
        self.ended.discard(experiment.row.id)
        del self.experiments[experiment.row.id], self.jobs[experiment.id]


_PLACES: dict[type, Callable[[ClusterState, Any], None]] = {
    Experiment: ClusterState._apply_experiment,
    Trial: ClusterState._apply_trial,
    Task: ClusterState._apply_task,
    Run: ClusterState._apply_run,
    Attempt: ClusterState._apply_attempt,
    Checkpoint: ClusterState._apply_checkpoint,
    SearchNote: ClusterState._apply_note,
    PoolState: ClusterState._apply_pool,
    NodeHealth: ClusterState._apply_node,
    Metric: lambda state, row: None,  # metrics stay in the store
}


def _config_of(row: Experiment) -> ExperimentConfig:
    try:
        return ExperimentConfig.from_json(row.config)
    except ConfigError as error:
        raise StoreError(f"experiment {row.id}: its stored configuration is invalid: {error}") from None
