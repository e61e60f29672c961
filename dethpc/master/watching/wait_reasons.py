"""Why trials wait: answers for clients, and a line in the trial's log at each change."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from dethpc.config.experiment import ExperimentConfig
from dethpc.domain.facts import Experiment, Run, Trial
from dethpc.domain.ports import SUSPENDED
from dethpc.domain.resource_request import ResourceRequest
from dethpc.domain.states import Intent, RunState, State
from dethpc.engine import ClusterState
from dethpc.engine.queueing.jobs import waits_for_searcher
from dethpc.engine.trials import AWAY
from dethpc.errors import SchedulerUnavailable
from dethpc.insight.reasons import in_scheduler
from dethpc.insight.waiting import PoolView, WaitReason, for_first_trial, in_queue, refused, suspended
from dethpc.master.parts import Parts
from dethpc.master.submitting.admission import Admission
from dethpc.master.watching.foreign_runs import GIVE_UP
from dethpc.master.watching.milestones import WAITS
from dethpc.master.watching.watch import Watch
from dethpc.rundir import logline
from dethpc.rundir.files import open_to_append

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Group:
    """Trials of one experiment that wait for the same thing."""

    waiting: WaitReason
    trials: list[int] = field(default_factory=list)  # ids, ascending


@dataclass(slots=True)
class _Open:
    """What is known of an experiment's open trials at one moment. ``next``: why its next trial has no run yet; ``first``: why
    they wait for its first trial, if so."""

    row: Experiment
    config: ExperimentConfig
    trials: list[tuple[Trial, Run | None]]
    next: WaitReason | None
    first: WaitReason | None


class WaitReasons:
    """All methods may be called from any thread but the ledger's."""

    def __init__(self, parts: Parts, watch: Watch, admission: Admission) -> None:
        self._ledger = parts.ledger
        self._view = parts.cluster
        self._home = parts.home
        self._cadence = watch.cadence
        self._holds = watch.holds
        self._foreign = watch.foreign
        self._admission = admission

    # --- answers

    def of_experiment(self, experiment_id: int) -> list[Group]:
        """The experiment's trials that wait, those that wait for the same thing together; none when it has ended."""
        snapshot = self._ledger.look(lambda state: _open(state, experiment_id))
        groups: dict[tuple[str, str, str], Group] = {}
        for trial, waiting in self._explained(snapshot):
            key = (waiting.cause, waiting.why, waiting.remedy)
            groups.setdefault(key, Group(waiting)).trials.append(trial.id)
        return sorted(groups.values(), key=lambda group: -len(group.trials))

    def of_trial(self, trial_id: int) -> WaitReason | None:
        """None: it does not wait."""

        def one(state: ClusterState) -> _Open | None:
            trial = state.trial(trial_id)
            return None if trial is None else _open(state, trial.experiment_id, trial.index)

        return next((waiting for _, waiting in self._explained(self._ledger.look(one))), None)

    def live(self) -> list[int]:
        """Ids of the experiments that have not ended and may have something that waits."""
        return self._ledger.look(lambda state: [e.row.id for e in state.active() if e.row.kind.submitted])

    def _explained(self, snapshot: _Open | None) -> Iterator[tuple[Trial, WaitReason]]:
        if snapshot is None:
            return
        request = self._request(snapshot.row, snapshot.config)
        view, unavailable = None, self._cadence.unavailable_because
        for trial, run in snapshot.trials:
            if run is None:
                yield trial, _without_run(trial, snapshot)
            elif why := self._foreign.why(run):
                yield trial, WaitReason("elsewhere", why, f"det master down, then det where its job runs; or {GIVE_UP}")
            elif run.state is RunState.RUNNING and run.reason == SUSPENDED:
                yield trial, suspended(run.scheduler_job_id or "")
            elif run.intent is not Intent.GO or run.state is RunState.RUNNING:
                continue
            elif unavailable:
                why = f"the scheduler does not answer ({unavailable})"
                yield trial, WaitReason("no_answer", why, "nothing is lost: the master asks again until it does")
            elif run.state is RunState.SUBMITTING and (why := self._holds.why(run)):
                yield trial, refused(why)
            elif run.state is RunState.SUBMITTING:
                yield trial, WaitReason("submitting", run.reason or "it is about to be submitted")
            else:
                view = view or self._view.pool_and_queue(run.pool)
                yield trial, in_scheduler(run.reason, request, view, run.scheduler_job_id or "")

    def _request(self, row: Experiment, config: ExperimentConfig) -> ResourceRequest:
        try:
            return self._admission.request(config)
        except (SchedulerUnavailable, ValueError):
            return ResourceRequest(row.pool, 1, row.slots_per_trial)

    # --- the trial's log

    def on_run_changed(self, run: Run, before: Run | None) -> None:
        """Write why the run waits into its trial's log, when the scheduler's reason is another than before."""
        if run.state is not RunState.PENDING or run.intent is not Intent.GO or not run.reason:
            return
        if before is not None and (before.state, before.reason) == (run.state, run.reason):
            return
        experiment = self._ledger.state.experiments.get(run.experiment_id or 0)
        if experiment is None:
            return
        try:
            view = self._view.pool(run.pool)  # what does not cost Slurm a question: this may concern many runs
        except SchedulerUnavailable:
            view = PoolView()
        waiting = in_scheduler(
            run.reason, self._request(experiment.row, experiment.config), view, run.scheduler_job_id or ""
        )
        self._write(run, f"Waiting in the scheduler's queue: {waiting} ({WAITS})")

    def on_refused(self, run: Run, why: str) -> None:
        """Write into its trial's log that the scheduler does not take its job at present."""
        self._write(run, f"Waiting: {refused(why)}")

    def _write(self, run: Run, message: str) -> None:
        line = logline.LogLine(time.time(), "INFO", None, "stdout", message)
        try:
            with open_to_append(self._home.run(run.id).waiting(run.attempt + 1)) as file:
                file.write(logline.format(line).encode())
        except OSError as error:
            log.warning("run %s: why it waits could not be written: %s", run.id, error)


def _open(state: ClusterState, experiment_id: int, index: int | None = None) -> _Open | None:
    experiment = state.experiments.get(experiment_id)
    if experiment is None or experiment.row.state.terminal or not experiment.row.kind.submitted:
        return None
    indexes = sorted(experiment.open) if index is None else [i for i in [index] if i in experiment.open]
    trials = [(experiment.trials[i], experiment.live.get(i)) for i in indexes]
    why = in_queue(state, experiment, time.time()) if experiment.waiting else None
    return _Open(experiment.row, experiment.config, trials, why, for_first_trial(experiment))


def _without_run(trial: Trial, snapshot: _Open) -> WaitReason:
    if waits_for_searcher(trial):
        return WaitReason("searcher", trial.reason or "it waits for its searcher, which waits for other trials")
    if trial.state is State.ACTIVE and trial.not_before is not None:
        seconds = max(0, round(trial.not_before - time.time()))
        if trial.reason.startswith(AWAY):
            return WaitReason("storage", f"{trial.reason}; it resumes in {seconds} s, if it can by then")
        why = f" ({trial.reason})" if trial.reason else ""
        return WaitReason("resting", f"it restarts in {seconds} s after a failure{why}")
    if trial.state is State.ACTIVE and trial.index and snapshot.first is not None:
        return snapshot.first
    if trial.state is State.PAUSED or snapshot.next is None:
        return WaitReason(
            "paused", trial.reason or "it is paused", f"resume with det experiment activate {snapshot.row.id}"
        )
    return snapshot.next
