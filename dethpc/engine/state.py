"""What the engine keeps in memory: a fold of rows, and indexes over it.

``apply`` is the only thing that alters it, and makes no choices. Rows are values: a row that is held is never altered.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from typing_extensions import assert_never

from dethpc.config.experiment import ExperimentConfig
from dethpc.config.hyperparameters import Space
from dethpc.config.searcher import Method
from dethpc.domain import facts
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
    Trial,
)
from dethpc.domain.ids import run_id
from dethpc.domain.ports import Snapshot
from dethpc.domain.states import RunState, State
from dethpc.engine.jobs import Job, RunPlace
from dethpc.engine.pools import Rules
from dethpc.engine.queue_index import Place, QueueIndex, key
from dethpc.engine.replace import replace
from dethpc.errors import ConfigError, StoreError
from dethpc.searcher.base import Exit, Searcher


@dataclass(frozen=True, slots=True)
class BadNodePolicy:
    """When a node is left out: after so many failures of at least two trials within so long, for so long. Times in seconds."""

    failures: int = 3  # 0: never
    within: float = 86400.0
    exclude: float = 86400.0


BuildSearcher = Callable[[Method, Space, int], Searcher]


@dataclass(slots=True)
class ExperimentState(Job):
    """One experiment with everything that decisions about it need. What wants a run are its trials, by their index."""

    row: Experiment
    config: ExperimentConfig  # the row's, parsed once
    searcher: Searcher
    trials: list[Trial] = field(default_factory=list)  # by index
    open: set[int] = field(default_factory=set)  # indexes of trials that have not ended
    notes: int = 0
    good_nodes: set[str] = field(default_factory=set)  # nodes on which some trial of it has trained

    @property
    def entry(self) -> Experiment:
        return self.row

    @property
    def slots(self) -> int:
        return self.row.slots_per_trial

    @property
    def room(self) -> int:
        """How many more runs ``max_slots`` allows."""
        row = self.row
        if row.max_slots is None or row.slots_per_trial == 0:
            return len(self.waiting)
        return min(len(self.waiting), max(0, row.max_slots - self.live_slots) // row.slots_per_trial)

    @property
    def queued(self) -> bool:
        return self.row.state is State.ACTIVE and not self.row.unmanaged

    def submission(self, member: int, place: RunPlace) -> list[Row]:
        row, trial = self.row, self.trials[member]
        number = trial.runs + 1
        run = Run(
            id=run_id(row.id, trial.id, number),
            experiment_id=row.id,
            trial_id=trial.id,
            number=number,
            state=RunState.SUBMITTING,
            created_at=place.at,
            slots=row.slots_per_trial,
            pool=place.pool,
            nice=place.nice,
        )
        return [replace(trial, runs=number), run]


@dataclass(slots=True)
class ClusterState:
    """All experiments. ``next_trial_id`` and ``next_experiment_id`` are the ids that the next rows will get."""

    build_searcher: BuildSearcher
    rules: Mapping[str, Rules] = field(default_factory=dict)  # by pool; the default ones for a pool that is not here
    experiments: dict[int, ExperimentState] = field(default_factory=dict)
    jobs: dict[str, Job] = field(default_factory=dict)  # by queue id
    trial_index: dict[int, tuple[int, int]] = field(default_factory=dict)  # trial id -> (experiment id, index)
    runs: dict[str, Run] = field(default_factory=dict)  # live ones
    pools: dict[str, PoolState] = field(default_factory=dict)  # what was last seen of them
    places: QueueIndex = field(default_factory=QueueIndex)  # jobs that want another run
    pending: dict[str, dict[str, Run]] = field(default_factory=dict)  # pool -> runs in the scheduler's own queue
    fresh: dict[str, dict[str, Run]] = field(default_factory=dict)  # pool -> runs that started since it was seen
    busy: dict[str, dict[str, int]] = field(default_factory=dict)  # pool -> job -> its live runs there
    attempts: dict[int, list[Attempt]] = field(default_factory=dict)  # trial id -> of open trials, oldest first
    checkpoints: dict[int, dict[str, Checkpoint]] = field(default_factory=dict)  # trial id -> by uuid, of open trials
    resting: dict[int, float] = field(default_factory=dict)  # trial id -> until when, of open trials that have failed
    nodes: dict[str, NodeHealth] = field(default_factory=dict)  # those that something is, or was, held against
    bad_nodes: BadNodePolicy = BadNodePolicy()
    next_experiment_id: int = 1
    next_trial_id: int = 1

    def trial(self, trial_id: int) -> Trial | None:
        place = self.trial_index.get(trial_id)
        return None if place is None else self.experiments[place[0]].trials[place[1]]

    def job_of(self, run: Run) -> Job:
        """The job of a live run."""
        return self.experiments[run.experiment_id]

    def member_of(self, run: Run) -> int:
        """Whose the live run is within its job."""
        return self.trial_index[run.trial_id][1]

    def attempt(self, run_id: str, number: int) -> Attempt | None:
        run = self.runs.get(run_id)
        if run is None:
            return None
        for attempt in reversed(self.attempts.get(run.trial_id, ())):
            if attempt.run_id == run_id and attempt.number == number:
                return attempt
        return None

    def rules_of(self, pool: str) -> Rules:
        return self.rules.get(pool) or Rules()

    def active(self) -> Iterator[ExperimentState]:
        return (e for e in self.experiments.values() if not e.row.state.terminal)

    # --- the fold

    @classmethod
    def fold(
        cls,
        build_searcher: BuildSearcher,
        snapshot: Snapshot,
        rules: Mapping[str, Rules] | None = None,
        bad_nodes: BadNodePolicy | None = None,
    ) -> ClusterState:
        """The state that the rows of ``snapshot`` give."""
        state = cls(build_searcher, rules or {}, bad_nodes=bad_nodes or BadNodePolicy())
        number = {run.id: run.number for run in snapshot.of(Run)}

        def order(row: Any) -> Any:
            return (row.trial_id, number.get(row.run_id, 0), row.number) if isinstance(row, Attempt) else facts.key(row)

        ended: list[Trial] = []
        for fact in facts.IN_MEMORY:
            for row in sorted(snapshot.of(fact), key=order):
                if isinstance(row, Trial) and row.state.terminal:
                    # A searcher hears of a trial's end after its notes, as it did when they were made.
                    ended.append(row)
                    row = replace(row, state=State.STOPPING_COMPLETED)
                state.apply(row)
            if fact is SearchNote:
                for trial in ended:
                    state.apply(trial)
        state.next_experiment_id = max(state.next_experiment_id, snapshot.next_experiment_id)
        state.next_trial_id = max(state.next_trial_id, snapshot.next_trial_id)
        return state

    def apply(self, row: Row) -> None:
        """Put ``row`` in its place."""
        if isinstance(row, Metric):
            return  # metrics stay in the store
        if isinstance(row, Trial):
            self._apply_trial(row)
        elif isinstance(row, Run):
            self._apply_run(row)
        elif isinstance(row, Attempt):
            self._apply_attempt(row)
        elif isinstance(row, Checkpoint):
            if self._is_open(row.trial_id):
                self.checkpoints.setdefault(row.trial_id, {})[row.uuid] = row
        elif isinstance(row, Experiment):
            self._apply_experiment(row)
        elif isinstance(row, PoolState):
            self.pools[row.name] = row
            started = self.fresh.get(row.name, {})
            self.fresh[row.name] = {id: run for id, run in started.items() if (run.started_at or 0.0) > row.seen_at}
        elif isinstance(row, NodeHealth):
            self.nodes[row.name] = row
        elif isinstance(row, SearchNote):
            experiment = self.experiments[row.experiment_id]
            experiment.notes = max(experiment.notes, row.seq)
            experiment.searcher.noted(row.trial_index, row.kind, row.data)
        else:
            assert_never(row)

    def _apply_experiment(self, row: Experiment) -> None:
        known = self.experiments.get(row.id)
        if row.state is State.DELETED:
            if known is not None:
                self._forget(known)
        elif known is not None:
            if row.config is not known.row.config:
                known.config = _config_of(row)
            known.row = row
            self._index_place(known)
        else:
            config = _config_of(row)
            searcher = self.build_searcher(config.searcher, config.space, row.seed)
            experiment = ExperimentState(row, config, searcher)
            self.experiments[row.id] = self.jobs[experiment.id] = experiment
        self.next_experiment_id = max(self.next_experiment_id, row.id + 1)

    def _apply_trial(self, row: Trial) -> None:
        experiment = self.experiments[row.experiment_id]
        if row.index == len(experiment.trials):
            experiment.trials.append(row)
            experiment.open.add(row.index)
            self.trial_index[row.id] = (row.experiment_id, row.index)
            self.next_trial_id = max(self.next_trial_id, row.id + 1)
            experiment.searcher.created(row.index, row.hparams, row.search)
        else:
            experiment.trials[row.index] = row
            if not row.state.terminal:
                experiment.open.add(row.index)  # an unmanaged trial may start again after its end
        if row.state.terminal and row.index in experiment.open:
            experiment.open.discard(row.index)
            experiment.searcher.closed(row.index, exit_of(row), row.best_validation)
            self.attempts.pop(row.id, None)
            self.checkpoints.pop(row.id, None)
        elif not row.state.terminal:
            experiment.searcher.advanced(row.index, row.progress)
        if row.not_before is None or row.state.terminal:
            self.resting.pop(row.id, None)
        else:
            self.resting[row.id] = row.not_before
        self._index_waiting(experiment, row)

    def _apply_run(self, row: Run) -> None:
        place = self.trial_index.get(row.trial_id)
        if place is None:
            return
        experiment = self.experiments[place[0]]
        trial = experiment.trials[place[1]]
        self._count(experiment, self.runs.get(row.id), -1)
        self._count(experiment, row, 1)
        if row.state is RunState.ENDED:
            self.runs.pop(row.id, None)
            live = experiment.live.get(trial.index)
            if live is not None and live.id == row.id:
                del experiment.live[trial.index]
        else:
            self.runs[row.id] = row
            experiment.live[trial.index] = row
        self._index_waiting(experiment, trial)

    def _count(self, job: Job, run: Run | None, sign: int) -> None:
        if run is None or run.state is RunState.ENDED:
            return
        busy = self.busy.setdefault(run.pool, {})
        busy[job.id] = busy.get(job.id, 0) + sign
        if not busy[job.id]:
            del busy[job.id]
        job.live_slots += sign * run.slots
        if run.state is RunState.RUNNING:
            self._count_fresh(run, sign)
            job.running_slots += sign * run.slots
            job.started += sign * run.slots * round((run.started_at or 0.0) * 1000)
        elif sign > 0:
            self.pending.setdefault(run.pool, {})[run.id] = run
        else:
            self.pending[run.pool].pop(run.id, None)

    def _count_fresh(self, run: Run, sign: int) -> None:
        pool = self.pools.get(run.pool)
        if sign < 0:
            self.fresh.get(run.pool, {}).pop(run.id, None)
        elif pool is not None and (run.started_at or 0.0) > pool.seen_at:
            self.fresh.setdefault(run.pool, {})[run.id] = run

    def _apply_attempt(self, row: Attempt) -> None:
        place = self.trial_index.get(row.trial_id)
        if place is not None and row.applied_seq:
            self.experiments[place[0]].good_nodes.update(row.nodes)
        if not self._is_open(row.trial_id):
            return
        attempts = self.attempts.setdefault(row.trial_id, [])
        for i in range(len(attempts) - 1, -1, -1):
            if attempts[i].run_id == row.run_id and attempts[i].number == row.number:
                attempts[i] = row
                return
        attempts.append(row)

    def _index_waiting(self, experiment: ExperimentState, trial: Trial) -> None:
        waits = (
            trial.state is State.ACTIVE
            and trial.index not in experiment.live
            and not waits_for_searcher(trial)
            and trial.not_before is None
        )
        i = bisect.bisect_left(experiment.waiting, trial.index)
        listed = i < len(experiment.waiting) and experiment.waiting[i] == trial.index
        if waits and not listed:
            experiment.waiting.insert(i, trial.index)
        elif listed and not waits:
            del experiment.waiting[i]
        self._index_place(experiment)

    def _index_place(self, job: Job) -> None:
        entry, place = job.entry, None
        if job.queued and job.room > 0:
            place = Place(entry.pool, job.slots, key(entry, self.rules_of(entry.pool).kind))
        if place != job.place:
            self.places.move(job.place, place)
            job.place = place

    def _is_open(self, trial_id: int) -> bool:
        trial = self.trial(trial_id)
        return trial is not None and not trial.state.terminal

    def _forget(self, experiment: ExperimentState) -> None:
        for trial in experiment.trials:
            self.trial_index.pop(trial.id, None)
            self.attempts.pop(trial.id, None)
            self.checkpoints.pop(trial.id, None)
            self.resting.pop(trial.id, None)
        self.places.move(experiment.place, None)
        del self.experiments[experiment.row.id], self.jobs[experiment.id]


def _config_of(row: Experiment) -> ExperimentConfig:
    try:
        return ExperimentConfig.from_json(row.config)
    except ConfigError as error:
        raise StoreError(f"experiment {row.id}: its stored configuration is invalid: {error}") from None


def waits_for_searcher(trial: Trial) -> bool:
    """Whether the trial waits for its searcher, which is none of the user's pausing and activating."""
    return bool(trial.search.get("waits"))


def exit_of(trial: Trial) -> Exit:
    """How a trial that ended left the search. Derived from the row alone, so that a fold gives the same."""
    if trial.early_exit.endswith("INVALID_HP"):
        return Exit.INVALID_HP
    if trial.state is State.ERROR:
        return Exit.ERRORED
    if trial.state is State.CANCELED:
        return Exit.CANCELED
    return Exit.COMPLETED
